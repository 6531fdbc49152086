# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before each step of a further control plane's join: the next try ends with a voting member of etcd.

The steps are those of the code itself. The two others stay, so etcd has its majority at any moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.attestation.eventlog import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.bootstrap.plan import Found, plan_steps
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm import MEMBER_PHASES
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.member import MEMBER_OPERATION
from ansible_collections.attested.kubernetes.tests.support.boot_lab import existing, is_joined, make_absent
from ansible_collections.attested.kubernetes.tests.support.etcdctl import learners_of
from ansible_collections.attested.kubernetes.tests.support.road import assert_one_lock_event
from ansible_collections.attested.kubernetes.tests.support.striking import FAULTS, PATIENCE_SECONDS, suffer, tell
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

pytestmark = pytest.mark.slow

STAY, JOINER = ("cp-1", "cp-2"), "cp-3"
FRESH = Found(
    lock=LockState.UNLOCKED, marker=False, certificate_seconds=None, kubeadm_left=True, confirmed=False, takes_keys=True
)
POINTS = [f"join:{one.name}" for one in plan_steps(FRESH)] + [f"{MEMBER_OPERATION}:{one.name}" for one in MEMBER_PHASES]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("point", POINTS)
def test_a_control_plane_joins_after_a_fault(planes: Road, case: dict[str, Any], point: str, fault: str) -> None:
    make_absent(planes, JOINER)
    wait_for(lambda: learners_of(planes) == dict.fromkeys(STAY, False))
    tell(planes, JOINER, point, fault)
    planes.lab.ssh(JOINER, "sudo systemctl reboot")
    suffer(planes, JOINER, fault)
    wait_for(lambda: is_joined(planes, JOINER), seconds=2 * PATIENCE_SECONDS)
    assert_one_lock_event(planes, JOINER)
    planes.wait_until_ready(JOINER, boot_id=planes.boot_id(JOINER))
    assert learners_of(planes) == dict.fromkeys((*STAY, JOINER), False)
    assert existing(planes, JOINER, "/run/attested/tickets/*") == []
    case["outcome"] = "joined"
