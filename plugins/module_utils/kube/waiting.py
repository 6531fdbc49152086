# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unknown machines that proved their key and wait for an admin's word, where the site chose ``queue`` (design 6.3).

A waiting machine is a `NodeIdentity` with the admission `Pending`, under its own name as node name until somebody gives
it one. It is made after the machine was refused, by one thread from a bounded queue, and nothing is released to it.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import ApiError
from ..policy import Admission, NodeIdentity, Role, identity_name, render_identity
from ..reasons import Reason
from .gateway import IDENTITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..system import Clock
    from .gateway import ObjectWriter, Reader

CLAIM = "attested-kubernetes.dev/claims-node"
"""Annotation with the node name that the machine asked for: a hint for the admin, which decides nothing."""

MAX_WAITING = 100

_QUEUED = 64
_WRITES_A_ROUND = 10
_ROUND_SECONDS = 1.0
_IDLE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An unknown machine whose key is proven, and the node that it says it is."""

    ek_sha256: str
    claims: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPlan:
    """Objects to make, and the names of those that make room."""

    creates: tuple[Mapping[str, Any], ...]
    drops: tuple[str, ...]


def plan_waiting(
    found: Sequence[Mapping[str, Any]], arrivals: Iterable[Arrival], *, limit: int = MAX_WAITING
) -> WaitingPlan:
    """Return how the waiting identities ``found`` become those with ``arrivals``: at most ``limit``, the oldest go."""
    known = {one["metadata"]["name"] for one in found}
    fresh = {identity_name(one.ek_sha256): one for one in arrivals}
    new = [one for name, one in fresh.items() if name not in known][-limit:]
    oldest_first = sorted(found, key=lambda one: one["metadata"].get("creationTimestamp", ""))
    too_many = max(0, len(found) + len(new) - limit)
    return WaitingPlan(
        creates=tuple(render_waiting(one) for one in new),
        drops=tuple(one["metadata"]["name"] for one in oldest_first[:too_many]),
    )


def render_waiting(arrival: Arrival) -> dict[str, Any]:
    """Return the identity of a machine that waits."""
    name = identity_name(arrival.ek_sha256)
    seen = arrival.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    identity = NodeIdentity(
        ek_sha256=arrival.ek_sha256,
        node_name=name,
        role=Role.WORKER,
        admission=Admission.PENDING,
        known_by=f"queue: proved its key {seen}, nobody vouches for it",
    )
    document = render_identity(identity)
    if arrival.claims:
        document["metadata"]["annotations"] = {CLAIM: arrival.claims}
    return document


class WaitingRoom:
    """The one writer of waiting identities: `note` from any thread, `run_once` in a loop of one."""

    def __init__(self, reader: Reader, writer: ObjectWriter, *, clock: Clock) -> None:
        """Make through ``writer`` what ``reader`` does not have yet."""
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._arrivals: queue.Queue[Arrival] = queue.Queue(_QUEUED)

    def note(self, arrival: Arrival) -> None:
        """Take a machine for the queue; a full one loses it, and the machine asks again."""
        try:
            self._arrivals.put_nowait(arrival)
        except queue.Full:
            return

    def run_once(self, idle_seconds: float = _IDLE_SECONDS) -> None:
        """Wait for a machine, write it and those behind it, then rest; raises `ApiError`."""
        arrivals = self._taken(idle_seconds)
        if not arrivals:
            return
        try:
            self._write(arrivals)
        finally:
            self._clock.sleep(_ROUND_SECONDS)

    def _taken(self, idle_seconds: float) -> list[Arrival]:
        taken: list[Arrival] = []
        try:
            taken.append(self._arrivals.get(timeout=idle_seconds) if idle_seconds else self._arrivals.get_nowait())
            while len(taken) < _WRITES_A_ROUND:
                taken.append(self._arrivals.get_nowait())
        except queue.Empty:
            return taken
        return taken

    def _write(self, arrivals: list[Arrival]) -> None:
        waiting = self._reader.objects(IDENTITIES, where={"spec.admission": Admission.PENDING.value})
        plan = plan_waiting(waiting, arrivals)
        for name in plan.drops:
            self._writer.delete(IDENTITIES, name)
        for document in plan.creates:
            self._create(document)

    def _create(self, document: Mapping[str, Any]) -> None:
        """Make one, unless the admin was faster."""
        try:
            self._writer.create(IDENTITIES, document)
        except ApiError as error:
            if error.reason is not Reason.API_CONFLICT:
                raise
