# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the playbooks take where nothing changes, beside a bare `ping` of the same three nodes.

In a lab of its own with one control plane and two workers, all joined. A run that changes something is refused.
Usage: python tests/bench/second_runs.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.bench import Figure, report
from ansible_collections.attested.kubernetes.tests.support.boot_lab import boot_lab
from ansible_collections.attested.kubernetes.tests.support.lab import obstacles
from ansible_collections.attested.kubernetes.tests.support.road import Run

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

WORKERS = ("w-1", "w-2")
BUDGETS = {"prepare": 10.0, "init": 10.0, "node": 10.0, "status": 6.0, "verify": 0.0}
SETTLED_LOAD_SECONDS = 15.0
PING = """
- hosts: nodes
  gather_facts: false
  tasks:
    - name: Ping
      ansible.builtin.ping:
"""


def taken(road: Road, playbook: str) -> float:
    """Run a playbook as an admin does; return the seconds that it takes."""
    lab = {"lab_name": road.lab.name, "lab_directory": str(road.lab.directory), "lab_loopback": road.lab.loopback}
    words = [str(Path(sys.executable).with_name("ansible-playbook")), playbook, "-e", json.dumps(lab)]
    environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0"}
    begun = time.monotonic()
    done = subprocess.run(
        words, cwd=road.site, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - begun
    changes = Run(name=playbook, returncode=done.returncode, output=done.stdout).changes()
    if done.returncode or not changes or any(changes.values()):
        raise RuntimeError(f"{playbook}: expected a run that changes nothing, got\n{done.stdout[-4000:]}{done.stderr}")
    return seconds


def measured(road: Road, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each playbook by round, after a first `node`, which records the disk ids in the site."""
    ping = road.site / "ping.yml"
    ping.write_text(PING, encoding="utf-8")
    playbooks = {"ping": str(ping), **{name: f"attested.kubernetes.{name}" for name in BUDGETS}}
    road.play("node")
    found: dict[str, list[float]] = {name: [] for name in playbooks}
    for _unused in range(rounds):
        for name, playbook in playbooks.items():
            found[name].append(taken(road, playbook))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    options = parser.parse_args()
    if found := obstacles():
        print(f"second_runs: not measured, {found}")
        return
    words = ("-e", json.dumps({"lab_bootstrapper": True, "lab_workers": len(WORKERS)}))
    with boot_lab("attested-second", "127.92.0", words=words, followers=WORKERS) as road:
        time.sleep(SETTLED_LOAD_SECONDS)
        seconds = measured(road, options.rounds)
    for name, values in seconds.items():
        print(f"{name}: {', '.join(f'{one:.1f}' for one in values)} s")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    report(
        *(
            Figure(
                name=f"{name}, three nodes, nothing to change",
                value=medians[name],
                unit="s",
                budget=budget,
                baseline=medians["ping"],
                baseline_name="s, a playbook with one ping",
            )
            for name, budget in BUDGETS.items()
        )
    )


if __name__ == "__main__":
    main()
