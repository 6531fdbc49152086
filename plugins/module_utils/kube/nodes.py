# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identities become `Joined` when their Node object has appeared.

Only the API server's own rules let a Node of a name appear: its node user under NodeRestriction, or an admin. So a
Node counts for an identity that was admitted, or that is this very control plane (which proved itself by opening its
sealed bundle).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ApiError
from ..policy import Admission
from ..reasons import Reason
from .live import StatusChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .gateway import Gateway
    from .live import LivePolicy, Registration, StatusWriter

ADMITTED = "Admitted"
JOINED = "Joined"
WATCH_SECONDS = 240
SOON_SECONDS = 5


def newly_joined(
    registrations: Iterable[Registration], nodes: frozenset[str], *, own_name: str
) -> tuple[Registration, ...]:
    """Return the registrations that become `Joined` with these Nodes there; ``own_name`` is this control plane."""
    return tuple(
        one
        for one in registrations
        if one.identity.node_name in nodes
        and one.identity.admission is Admission.APPROVED
        and one.identity.status.phase != JOINED
        and (one.identity.status.phase == ADMITTED or one.identity.node_name == own_name)
    )


class NodeWatcher:
    """Sets the phase of identities whose Node is there."""

    def __init__(
        self,
        gateway: Gateway,
        policy: LivePolicy,
        writer: StatusWriter,
        *,
        own_name: str,
        joined: Callable[[str], None],
        own_disk: Callable[[], str] = str,
    ) -> None:
        """Call ``joined`` with each node name that became `Joined`.

        ``own_disk`` says the id of the disk of the control plane ``own_name`` where it made the cluster with it, else
        nothing: any other disk's id is assigned with a ticket.
        """
        self._gateway = gateway
        self._policy = policy
        self._writer = writer
        self._own_name = own_name
        self._joined = joined
        self._own_disk = own_disk
        self._own_joined = False

    def run_once(self, seconds: int = WATCH_SECONDS) -> None:
        """Look at every Node that is there or appears within ``seconds``; raises `ApiError`.

        The Node of this control plane is there before the site's policy brings its identity, and no arrival tells of
        that: until it has joined, all Nodes are looked at again soon.
        """
        for names in self._gateway.node_arrivals(seconds if self._own_joined else min(seconds, SOON_SECONDS)):
            self.settle(names)

    def settle(self, nodes: frozenset[str]) -> None:
        """Write the phase of each identity that these Nodes complete; one that changed meanwhile is read again."""
        if not nodes:
            return
        try:
            self._settle(nodes)
        except ApiError as error:
            if error.reason is not Reason.API_CONFLICT:
                raise
            self._settle(nodes)

    def _settle(self, nodes: frozenset[str]) -> None:
        registrations = self._policy.registrations()
        for registration in newly_joined(registrations, nodes, own_name=self._own_name):
            self._writer.write(registration, StatusChange(phase=JOINED, disk_id=self._disk_of(registration)))
            self._joined(registration.identity.node_name)
        own = [one.identity for one in registrations if one.identity.node_name == self._own_name]
        self._own_joined = self._own_joined or any(one.status.phase == JOINED for one in own)

    def _disk_of(self, registration: Registration) -> str:
        """Return the disk that is written with the phase, so that no ticket finds the one without the other."""
        identity = registration.identity
        return "" if identity.node_name != self._own_name or identity.status.disk_id else self._own_disk()
