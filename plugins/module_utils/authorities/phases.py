# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One control plane through the phases that touch what runs: files, then its components one after the other.

    turn → are all members of etcd well? → start anew → is it well? → the next component → its other services → mark

The first that is not well ends it, so no second control plane is touched then. Each phase may be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..certificates import ETCD, NOBODY, ORDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..certificates import Members, Pods, RenewalPlan, Turns
    from ..result import Step
    from .files import AuthorityFiles


class Services(Protocol):
    """What else on this machine keeps the CAs in memory: its kubelet, and its key service."""

    def restart(self) -> None:
        """Start them anew; raises where one does not come up."""


class LeafRenewal(Protocol):
    """Makes the certificates of this control plane anew, `ControlPlaneRenewal` on a machine."""

    def plan(self, *, at_once: bool = False) -> RenewalPlan:
        """Look at the machine."""

    def apply(self, todo: RenewalPlan) -> tuple[Step, ...]:
        """Renew what is planned and start each component anew."""


class PlaneRotation:
    """The phases of one control plane; what they raise besides is what `Pods`, `Members` and `Turns` raise."""

    def __init__(
        self,
        files: AuthorityFiles,
        *,
        renewal: LeafRenewal,
        pods: Pods,
        members: Members,
        turns: Turns,
        services: Services,
    ) -> None:
        """Keep the files and the surroundings."""
        self._files = files
        self._renewal = renewal
        self._pods = pods
        self._members = members
        self._turns = turns
        self._services = services

    def believe(self, bundles: Mapping[str, tuple[str, ...]], known: Mapping[str, bytes]) -> None:
        """Believe whom ``bundles`` name and nobody else: the phases `TRUST` and `RETIRE`."""
        self._files.believe(bundles, known)
        try:
            for component in ORDER:
                if component != NOBODY:
                    self._start_anew(component)
        finally:
            self._turns.free()
        self._services.restart()
        self._files.mark()

    def issue(self, bundles: Mapping[str, tuple[str, ...]], known: Mapping[str, bytes]) -> tuple[Step, ...]:
        """Let the successors sign, and make anew what the ones before signed: the phase `ISSUE`."""
        self._files.lead(bundles, known)
        steps = self._renewal.apply(self._renewal.plan(at_once=True))
        self._services.restart()
        self._files.mark()
        return steps

    def _start_anew(self, component: str) -> None:
        self._turns.take()
        if component == ETCD:
            self._members.require_healthy()
        self._pods.restart(component)
