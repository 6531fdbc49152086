# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long `upgrade` takes for a worker, beside bare ``kubeadm upgrade node`` and a restart of its kubelet.

In a lab of its own with one control plane and one worker. Ours is the last play of the playbook: the worker is drained,
its kubelet and containerd are replaced, its evidence is accepted, and it takes Pods again. The two releases have one
version of Kubernetes and other programs. Beside it: the plan (``--check``), and a run that changes nothing.
Usage: python tests/bench/upgrade.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, report
from ansible_collections.attested.kubernetes.tests.support.newer_bundle import newer
from ansible_collections.attested.kubernetes.tests.support.road import road_through

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

LAB = "attested-upgrade-bench:127.66.0"
USED_LAB = "ATTESTED_UPGRADE_BENCH_LAB"
WORDS = ("-e", '{"lab_control_planes": 1, "lab_workers": 1}')
WORKER = "w-1"
PLAY = "PLAY [Upgrade Kubernetes on the workers]"
END = "PLAY RECAP"
OVER_BARE_SECONDS = 15.0
PLAN_SECONDS = 20.0
NO_CHANGE_SECONDS = 20.0
# healthy by its own word; Ready takes one heartbeat more
BARE = """
set -e
kubeadm upgrade node --ignore-preflight-errors=all >/dev/null
systemctl restart kubelet
until curl --silent --fail http://127.0.0.1:10248/healthz >/dev/null; do sleep 0.2; done
"""


def timed(road: Road, *words: str) -> dict[str, float]:
    """Run the playbook; return when each play began and when it ended, in seconds from the start."""
    begun = time.monotonic()
    process = road.start("upgrade", *words)
    assert process.stdout is not None
    seen: dict[str, float] = {}
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("PLAY "):
            seen[line.partition(" *")[0].strip()] = time.monotonic() - begun
    if process.wait():
        raise RuntimeError("upgrade: " + "".join(lines[-60:]))
    return {**seen, END: time.monotonic() - begun}


def bare(road: Road) -> float:
    """Return the seconds of kubeadm and the kubelet alone."""
    begun = time.monotonic()
    road.inside(WORKER, "sh", "-c", BARE)
    return time.monotonic() - begun


def measure(road: Road, rounds: int) -> dict[str, float]:
    """Return the medians: a worker's upgrade by ours and by kubeadm alone, the plan, a run without a change."""
    releases = [newer(road, f"bundle-{name}", more=f"# {name}\n") for name in ("even", "odd")]
    for words in releases:
        road.play("prepare", *words)
    taken: dict[str, list[float]] = {"ours": [], "bare": [], "plan": [], "again": []}
    for number in range(rounds):
        words = releases[number % 2]
        taken["plan"].append(timed(road, "--check", *words)[END])
        times = timed(road, *words)
        taken["ours"].append(times[END] - times[PLAY])
        taken["again"].append(timed(road, *words)[END])
        taken["bare"].append(bare(road))
        print(f"round {number + 1}: " + ", ".join(f"{name} {values[-1]:.1f} s" for name, values in taken.items()))
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default: %(default)s)")
    options = parser.parse_args()
    try:
        with road_through("lab", "init", "node", of=LAB, instead=USED_LAB, words=WORDS) as road:
            median = measure(road, options.rounds)
    except pytest.skip.Exception as reason:
        print(f"upgrade: not measured, {reason}")
        return
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"medians of {options.rounds} rounds; {os.cpu_count()} processors, load {load}")
    alone, name = median["bare"], "s, bare kubeadm upgrade node and kubelet"
    report(
        Figure(
            name="upgrade of a worker", value=median["ours"], unit="s", budget=alone + OVER_BARE_SECONDS,
            baseline=alone, baseline_name=name,
        ),
        Figure(
            name="plan of an upgrade, two nodes", value=median["plan"], unit="s", budget=PLAN_SECONDS,
            baseline=alone, baseline_name=name,
        ),
        Figure(
            name="upgrade without a change, two nodes", value=median["again"], unit="s", budget=NO_CHANGE_SECONDS,
            baseline=alone, baseline_name=name,
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()
