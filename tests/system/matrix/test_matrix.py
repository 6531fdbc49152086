# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before each step of a worker's join and of an init: the next try ends with a node, and with one lock event.

The steps are those of the code itself. A join is tried again by its bootstrapper, an init by its admin. The joins come
first: a control plane that is made anew has forgotten its workers.
"""

from __future__ import annotations

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
from ansible_collections.attested.kubernetes.tests.support.striking import FAULTS, PATIENCE_SECONDS, suffer, tell
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

pytestmark = pytest.mark.slow

OF_A_MEMBER = f"join:{StepName.RESTART.name}"
FRESH = Found(lock=LockState.UNLOCKED, marker=False, certificate_seconds=None, kubeadm_left=True, confirmed=False)
WORKER_STEPS = [*plan_steps(FRESH), StepName.RESTART]
JOIN_POINTS = [f"join:{one.name}" for one in WORKER_STEPS] + [f"join:{one.name}" for one in JOIN_PHASES]
INIT_POINTS = ["init:KEYS", "init:TAKE"] + [f"init:{one.name}" for one in INIT_PHASES]


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
