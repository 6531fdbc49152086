# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before one step of a machine in a lab: ordered, awaited, and ended."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

FAULTS = ("kill", "reboot", "cut")
STRUCK = "/var/lib/attested-matrix/struck.json"
CUT_SECONDS = 8.0
PATIENCE_SECONDS = 300
LOOK_SECONDS = 10


def tell(road: Road, machine: str, point: str, fault: str) -> None:
    """Give the machine its order."""
    road.inside(machine, "rm", "-f", STRUCK)
    order = json.dumps({"point": point, "fault": fault}).encode()
    road.inside(machine, "sh", "-c", "cat > /var/lib/attested-matrix/order.json && sync", given=order)


def suffer(road: Road, machine: str, fault: str) -> None:
    """Wait until the fault has struck; end a cut, wait for the boot after a reboot."""
    said = ""

    def has_struck() -> bool:
        nonlocal said
        said = struck_on(road, machine)
        return bool(said)

    wait_for(has_struck, seconds=PATIENCE_SECONDS)
    if fault == "cut":
        time.sleep(CUT_SECONDS)
        road.inside(machine, "iptables", "--wait", "--delete", "INPUT", "--in-interface", "eth0", "--jump", "DROP")
        road.inside(machine, "iptables", "--wait", "--delete", "OUTPUT", "--out-interface", "eth0", "--jump", "DROP")
    if fault == "reboot":
        road.lab.wait_for_boot(machine, other_than=json.loads(said)["boot"], seconds=PATIENCE_SECONDS)


def struck_on(road: Road, machine: str) -> str:
    """Return what the machine wrote when it struck, empty before; a look that a reboot cuts off never returns."""
    argv = [str(road.lab.directory / "podman"), "exec", machine, "cat", STRUCK]
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LOOK_SECONDS).stdout
    except subprocess.TimeoutExpired:
        return ""
