# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab of machines that join by themselves, for tests that repeat the join many times."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch
from ansible_collections.attested.kubernetes.tests.support.lab import Lab
from ansible_collections.attested.kubernetes.tests.support.road import Road
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

USED_LAB = "ATTESTED_BOOT_LAB"
"""Developer option: NAME:LOOPBACK of a running lab with a cluster, which is used and kept."""

CONTROL_PLANE, WORKER = "cp-1", "w-1"
UNIT = "attested-bootstrapper.service"
DOOR = "attested-init-service.service"
PYTHON = "/opt/attested/venv/bin/python"
WORDS = ("-e", '{"lab_bootstrapper": true, "lab_workers": 1}')

# the commands of the playbook reset on the machine
_ABSENT = """
from ansible_collections.attested.kubernetes.plugins.module_utils.node import client
client.run_node({
    "state": "absent", "node_config": "/etc/attested/node.yml", "cri_socket": "unix:///run/containerd/containerd.sock",
}, False)
"""


_JOINED = (
    f'test "$(systemctl is-active {UNIT})" = inactive && '
    "{ test -e /run/attested/joined || systemctl is-active --quiet kubelet; }"  # a locked member only starts it
)


@contextmanager
def boot_lab(
    name: str, loopback: str, *, words: tuple[str, ...] = WORDS, followers: tuple[str, ...] = (WORKER,)
) -> Iterator[Road]:
    """Create the lab and its cluster over the network, wait until ``followers`` join, remove it at the end."""
    used = os.environ.get(USED_LAB)
    if used:
        name, _colon, loopback = used.partition(":")
    lab = Lab(name=name, directory=Path.home() / ".local" / "state" / name, loopback=loopback)
    road = Road(lab=lab, watch=ProcessWatch(), began=time.time())
    try:
        if not used:
            road.play("lab_machines", *words, where=Path.home())
            for playbook in ("lab", "init"):
                road.play(playbook, *words)
            wait_for(lambda: all(is_joined(road, machine) for machine in followers), seconds=900)
        yield road
    finally:
        if not used:
            lab.remove()


def state_of(road: Road, machine: str, unit: str) -> str:
    """Return the state of a unit by systemctl."""
    return road.inside(machine, "systemctl", "is-active", unit, check=False).strip()


def address_of(road: Road, machine: str) -> str:
    """Return the address by which the nodes reach a machine."""
    found = road.inside(machine, "sh", "-c", "ip -4 -o addr show dev eth0 | sed 's/.*inet //; s,/.*,,'")
    return found.split()[0]


def existing(road: Road, machine: str, *patterns: str) -> list[str]:
    """Return the files of a machine that match one of the shell patterns."""
    return road.inside(machine, "sh", "-c", f"ls -d {' '.join(patterns)} 2>/dev/null || true").split()


def make_absent(road: Road, machine: str) -> None:
    """Reset a machine like the playbook `reset`, up to its reboot."""
    road.inside(machine, "systemctl", "stop", UNIT, check=False)
    road.inside(machine, PYTHON, "-c", _ABSENT)
    if machine != CONTROL_PLANE:
        road.kubectl("delete", "node", machine, "--ignore-not-found", "--wait=false")


def make_fresh(road: Road, machine: str) -> None:
    """Reset and reboot a machine: unlocked and no member, as after `prepare`."""
    make_absent(road, machine)
    road.reboot(machine)


def is_joined(road: Road, machine: str) -> bool:
    """Return whether the bootstrapper ended, with the Node of this boot or a started kubelet of a member."""
    return road.inside(machine, "sh", "-c", f"{_JOINED} && echo yes", check=False) == "yes\n"


def wait_until_joined(road: Road, machine: str, *, seconds: float) -> None:
    """Wait for the end of a join on a machine that does not reboot meanwhile; it polls locally, which is faster."""
    look = f"for each in $(seq 100); do {_JOINED} && echo yes && exit; sleep 0.2; done"
    wait_for(lambda: road.inside(machine, "sh", "-c", look, check=False) == "yes\n", seconds=seconds)
