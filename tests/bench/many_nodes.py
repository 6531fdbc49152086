# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All workers that a lab can hold are started at once, beside one of them alone: from its unit's start to its Node.

In a lab of its own, with one control plane; a worker counts as joined when a watch there shows its Node. All machines
share the processors of this one, so what the join itself costs is multiplied as it would not be on machines of their
own; the processors are printed beside the figure.
Usage: python tests/bench/many_nodes.py [--workers N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.bench import Figure, report
from ansible_collections.attested.kubernetes.tests.support.boot_lab import (
    CONTROL_PLANE,
    UNIT,
    boot_lab,
    is_joined,
    make_fresh,
)
from ansible_collections.attested.kubernetes.tests.support.lab import obstacles
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ansible_collections.attested.kubernetes.tests.support.road import Road

MOST = 9
TIMES_ONE = 3.0
PATIENCE_SECONDS = 900.0
SETTLED_LOAD_SECONDS = 20.0
ADMIN = "--kubeconfig=/etc/kubernetes/admin.conf"


class Seen:
    """When each Node was seen first, by the lines of a watch."""

    def __init__(self) -> None:
        """Begin with none."""
        self.at: dict[str, float] = {}

    def take(self, stream: Iterable[str]) -> None:
        """Read until the end."""
        for line in stream:
            self.at.setdefault(line.strip().removeprefix("node/"), time.monotonic())


@contextmanager
def watched(road: Road) -> Iterator[Seen]:
    """Watch the Nodes by the control plane; the watch stands before this returns."""
    words = ["timeout", str(int(PATIENCE_SECONDS)), "kubectl", ADMIN, "get", "nodes", "--watch", "--output=name"]
    argv = [str(road.lab.directory / "podman"), "exec", CONTROL_PLANE, *words]
    seen = Seen()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=seen.take, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            wait_for(lambda: CONTROL_PLANE in seen.at)
            yield seen
        finally:
            process.terminate()


def on_each(machines: Sequence[str], road: Road, *argv: str) -> None:
    """Run a command on all machines side by side."""
    with ThreadPoolExecutor(max_workers=len(machines)) as pool:
        list(pool.map(lambda machine: road.inside(machine, *argv), machines))


def hold_back(machines: Sequence[str], road: Road) -> None:
    """Make machines nobody's in a fresh boot in which nothing starts by itself."""
    on_each(machines, road, "systemctl", "disable", "--quiet", UNIT)
    for machine in machines:
        make_fresh(road, machine)
    time.sleep(SETTLED_LOAD_SECONDS)


def joined(machines: Sequence[str], road: Road) -> dict[str, float]:
    """Start machines at once; return the seconds up to the Node of each."""
    hold_back(machines, road)
    with watched(road) as seen:
        began = time.monotonic()
        on_each(machines, road, "systemctl", "start", "--no-block", UNIT)
        wait_for(lambda: seen.at.keys() >= set(machines), seconds=PATIENCE_SECONDS)
    wait_for(lambda: all(is_joined(road, machine) for machine in machines), seconds=PATIENCE_SECONDS)
    return {machine: seen.at[machine] - began for machine in machines}


def show(one: float, many: Sequence[float]) -> None:
    """Print how the many came and hand on the last of them."""
    print(f"one: {one:.2f} s; {len(many)} at once: {', '.join(f'{each:.2f}' for each in sorted(many))} s")
    print(f"median {statistics.median(many):.2f} s; {os.cpu_count()} processors")
    report(
        Figure(
            name=f"{len(many)} workers at once, unit start to the last Node",
            value=max(many),
            unit="s",
            budget=TIMES_ONE * one,
            baseline=one,
            baseline_name="s, one alone",
        )
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=MOST, help="at once (default: %(default)s)")
    options = parser.parse_args()
    if found := obstacles():
        print(f"many_nodes: not measured, {found}")
        return
    workers = tuple(f"w-{number}" for number in range(1, options.workers + 1))
    words = ("-e", json.dumps({"lab_bootstrapper": True, "lab_workers": len(workers)}))
    with boot_lab("attested-many", "127.84.0", words=words, followers=workers) as road:
        alone = joined(workers[:1], road)
        many = joined(workers, road)
    show(alone[workers[0]], list(many.values()))


if __name__ == "__main__":
    main()
