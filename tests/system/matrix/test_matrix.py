# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before each step of a join and of an init: the next try ends with a node, and with one lock event.

The steps are those of the code itself. A join is tried again by its bootstrapper, an init by its admin. The joins come
first: a control plane that is made anew has forgotten its workers.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.attestation.eventlog import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.bootstrap.plan import Found, StepName, plan_steps
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm import INIT_PHASES, JOIN_PHASES
from ansible_collections.attested.kubernetes.plugins.module_utils.site import Site
from ansible_collections.attested.kubernetes.tests.support.boot_lab import (
    CONTROL_PLANE,
    DOOR,
    UNIT,
    WORKER,
    existing,
    is_joined,
    make_absent,
    make_fresh,
    state_of,
)
from ansible_collections.attested.kubernetes.tests.support.road import assert_one_lock_event
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Road

pytestmark = pytest.mark.slow

FAULTS = ("kill", "reboot", "cut")
OF_A_MEMBER = f"join:{StepName.RESTART.name}"
FRESH = Found(lock=LockState.UNLOCKED, marker=False, certificate_seconds=None, kubeadm_left=True, confirmed=False)
WORKER_STEPS = [*plan_steps(FRESH), StepName.RESTART]
JOIN_POINTS = [f"join:{one.name}" for one in WORKER_STEPS] + [f"join:{one.name}" for one in JOIN_PHASES]
INIT_POINTS = ["init:KEYS", "init:TAKE"] + [f"init:{one.name}" for one in INIT_PHASES]
STRUCK = "/var/lib/attested-matrix/struck.json"
CUT_SECONDS = 8.0
PATIENCE_SECONDS = 300
LOOK_SECONDS = 10


@pytest.fixture
def case(request: pytest.FixtureRequest, cases: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One line of the record; what does not say otherwise has failed."""
    point, fault = (request.node.callspec.params[name] for name in ("point", "fault"))
    line = {"point": point, "fault": fault, "outcome": "failed", "seconds": 0.0}
    began = time.monotonic()
    yield line
    line["seconds"] = round(time.monotonic() - began, 1)
    cases.append(line)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("point", JOIN_POINTS)
def test_a_join_goes_on_after_a_fault(road: Road, case: dict[str, Any], point: str, fault: str) -> None:
    if point == OF_A_MEMBER:
        if not is_joined(road, WORKER):
            make_fresh(road, WORKER)
            wait_for(lambda: is_joined(road, WORKER), seconds=PATIENCE_SECONDS)
    else:
        make_absent(road, WORKER)
    tell(road, WORKER, point, fault)
    road.lab.ssh(WORKER, "sudo systemctl reboot")
    suffer(road, WORKER, fault)
    wait_for(lambda: is_joined(road, WORKER), seconds=PATIENCE_SECONDS)
    assert_one_lock_event(road, WORKER)
    road.wait_until_ready(WORKER, boot_id=road.boot_id(WORKER))
    assert existing(road, WORKER, "/run/attested/tickets/*") == []
    case["outcome"] = "joined"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("point", INIT_POINTS)
def test_an_init_goes_on_after_a_fault(road: Road, case: dict[str, Any], point: str, fault: str) -> None:
    road.inside(WORKER, "systemctl", "disable", "--now", UNIT, check=False)  # nobody but the admin asks this machine
    make_fresh(road, CONTROL_PLANE)
    Site.at(str(road.site)).admin_kubeconfig.unlink(missing_ok=True)  # of a cluster that is no more
    wait_for(lambda: state_of(road, CONTROL_PLANE, DOOR) == "active")
    tell(road, CONTROL_PLANE, point, fault)
    first = road.start("init")
    suffer(road, CONTROL_PLANE, fault)
    if road.finish("init", first).returncode != 0:
        road.play("init")
    wait_for(lambda: state_of(road, CONTROL_PLANE, UNIT) == "inactive", seconds=PATIENCE_SECONDS)
    assert_one_lock_event(road, CONTROL_PLANE)
    road.wait_until_ready(CONTROL_PLANE, boot_id=road.boot_id(CONTROL_PLANE))
    case["outcome"] = "joined"


def tell(road: Road, machine: str, point: str, fault: str) -> None:
    """Give the machine its order."""
    road.inside(machine, "rm", "-f", STRUCK)
    order = json.dumps({"point": point, "fault": fault}).encode()
    road.inside(machine, "sh", "-c", "cat > /var/lib/attested-matrix/order.json && sync", given=order)


def suffer(road: Road, machine: str, fault: str) -> None:
    """Wait until the fault has struck; end a cut, wait for the boot after a reboot."""
    seen: list[str] = []
    wait_for(lambda: bool(seen.append(struck_on(road, machine)) or seen[-1]), seconds=PATIENCE_SECONDS)
    struck = json.loads(seen[-1])
    if fault == "cut":
        time.sleep(CUT_SECONDS)
        road.inside(machine, "iptables", "--wait", "--delete", "INPUT", "--in-interface", "eth0", "--jump", "DROP")
        road.inside(machine, "iptables", "--wait", "--delete", "OUTPUT", "--out-interface", "eth0", "--jump", "DROP")
    if fault == "reboot":
        road.lab.wait_for_boot(machine, other_than=struck["boot"], seconds=PATIENCE_SECONDS)


def struck_on(road: Road, machine: str) -> str:
    """Return what the machine wrote when it struck, empty before; a look that a reboot cuts off never returns."""
    argv = [str(road.lab.directory / "podman"), "exec", machine, "cat", STRUCK]
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LOOK_SECONDS).stdout
    except subprocess.TimeoutExpired:
        return ""
