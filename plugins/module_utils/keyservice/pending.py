# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unknown machines that proved their key and wait for an admin's word, where the site chose ``queue``.

A waiting machine is a `NodeIdentity` with the admission `Pending`, under its own name as node name until somebody gives
it one. It is made after the machine was refused, by one thread from a bounded queue, and nothing is released to it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..core.rate import Shares
from ..errors import ApiError
from ..policy.identity import Admission, NodeIdentity, Role, identity_name
from ..policy.manifest import render_identity
from ..reasons import Reason
from .kube_api import IDENTITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..core.host import Clock
    from .kube_api import ObjectWriter, Reader

CLAIM = "attested-kubernetes.dev/claims-node"
"""Annotation with the node name that the machine asked for: a hint for the admin, which decides nothing."""

SOURCE = "attested-kubernetes.dev/source"
"""Annotation with what the machine's address counts as (`core.rate.source_of`): whose machines make room first."""

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
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPlan:
    """Objects to make, and the names of those that make room."""

    creates: tuple[Mapping[str, Any], ...]
    drops: tuple[str, ...]


def plan_waiting(
    found: Sequence[Mapping[str, Any]], arrivals: Iterable[Arrival], *, limit: int = MAX_WAITING
) -> WaitingPlan:
    """Return how the waiting identities ``found`` become those with ``arrivals``: at most ``limit``.

    What goes where there are too many: the oldest of the source that has the most, so that a flood of made-up machines
    from one address pushes out its own.
    """
    shares: Shares[str] = Shares()
    for one in sorted(found, key=lambda one: str(one["metadata"].get("creationTimestamp", ""))):
        shares.add(_source(one), one["metadata"]["name"])
    known, new = set(shares), dict[str, Arrival]()
    for arrival in arrivals:
        name = identity_name(arrival.ek_sha256)
        if name not in known and name not in new:
            shares.add(arrival.source, name)
            new[name] = arrival
    drops = [_dropped(shares) for _unused in range(max(0, len(shares) - limit))]
    return WaitingPlan(
        creates=tuple(render_waiting(one) for name, one in new.items() if name not in drops),
        drops=tuple(name for name in drops if name in known),
    )


def _dropped(shares: Shares[str]) -> str:
    name = shares.of_the_largest()
    shares.remove(name)
    return name


def _source(document: Mapping[str, Any]) -> str:
    return str((document["metadata"].get("annotations") or {}).get(SOURCE, ""))


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
    said = {CLAIM: arrival.claims, SOURCE: arrival.source}
    if any(said.values()):
        document["metadata"]["annotations"] = {name: value for name, value in said.items() if value}
    return document


class WaitingRoom:
    """The one writer of waiting identities: `note` from any thread, `run_once` in a loop of one."""

    def __init__(self, reader: Reader, writer: ObjectWriter, *, clock: Clock) -> None:
        """Make through ``writer`` what ``reader`` does not have yet."""
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._changed = threading.Condition()
        self._arrivals: Shares[Arrival] = Shares()

    def note(self, arrival: Arrival) -> None:
        """Take a machine for the queue; a full one loses the oldest of the source that has the most.

        That machine asks again.
        """
        with self._changed:
            self._arrivals.add(arrival.source, arrival)
            if len(self._arrivals) > _QUEUED:
                self._arrivals.remove(self._arrivals.of_the_largest())
            self._changed.notify()

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
        with self._changed:
            self._changed.wait_for(lambda: len(self._arrivals) > 0, idle_seconds)
            taken = list(self._arrivals)[:_WRITES_A_ROUND]
            for arrival in taken:
                self._arrivals.remove(arrival)
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
