# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The turn of ADR 0020 held by a playbook: while a playbook holds it, no control plane joins.

Otherwise a control plane could get a ticket before a rotation step, and write outdated keys after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.host import SystemClock
from ..keyservice.join_lease import LEASE, LEASE_NAMESPACE, Turn, free_turn, take_turn
from ..kubeadm.kubectl import Kubectl
from ..result import Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.host import Clock

_KIND = "lease.coordination.k8s.io"


def run_join_turn(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Take or free the turn.

    Raises CONTROL_PLANE_JOIN_BUSY, KUBECTL_FAILED (also if another holder was faster).
    """
    kubectl = Kubectl.of_a_module(params["kubeconfig"])
    if params["state"] == "present":
        hold_turn(kubectl, holder=params["holder"], clock=SystemClock(), check_mode=check_mode)
        return Result()
    return Result(changed=end_turn(kubectl, holder=params["holder"], check_mode=check_mode))


def hold_turn(kubectl: Kubectl, *, holder: str, clock: Clock, check_mode: bool = False) -> None:
    """Take or renew the turn for ``holder``; raises CONTROL_PLANE_JOIN_BUSY if a control plane joins."""
    turn = _read(kubectl)
    lease = take_turn(turn, identity=holder, now=clock.now())
    if not check_mode:
        (kubectl.create if turn is None else kubectl.replace)(lease)


def end_turn(kubectl: Kubectl, *, holder: str, check_mode: bool = False) -> bool:
    """Free the turn if ``holder`` has it; return whether it had the turn."""
    turn = _read(kubectl)
    if turn is None or turn.holder != holder:
        return False
    if not check_mode:
        kubectl.replace(free_turn(turn))
    return True


def _read(kubectl: Kubectl) -> Turn | None:
    found = kubectl.read_one(_KIND, LEASE, LEASE_NAMESPACE)
    return Turn.parse(found[0]) if found else None
