# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of unknown machines that proved their key and wait for an admin, if the site chose ``queue``.

A waiting machine is a `NodeIdentity` with the admission `Pending`. Its node name is the object's name until an admin
sets another. One thread creates it from a bounded queue after the machine was refused; the machine gets no ticket.
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
"""Annotation with the node name that the machine requested: a hint for the admin, not used in decisions."""

SOURCE = "attested-kubernetes.dev/source"
"""Annotation with the machine's source (`core.rate.source_of`): it decides which machines are dropped first."""

MAX_WAITING = 100

_QUEUED = 64
_WRITES_A_ROUND = 10
_ROUND_SECONDS = 1.0
_IDLE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An unknown machine whose key is proven, and the node name that it claims."""

    ek_sha256: str
    claims: str
    at: datetime
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPlan:
    """The objects to create, and the names of the objects to delete."""

    creates: tuple[Mapping[str, Any], ...]
    drops: tuple[str, ...]


def plan_waiting(
    found: Sequence[Mapping[str, Any]], arrivals: Iterable[Arrival], *, limit: int = MAX_WAITING
) -> WaitingPlan:
    """Return the changes that add ``arrivals`` to the waiting identities ``found``, up to ``limit`` in all.

    If there are too many, the oldest of the source with the most machines is dropped. So many invented machines from
    one address push out only each other.
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
    """Return the pending identity of a machine."""
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
    annotations = {CLAIM: arrival.claims, SOURCE: arrival.source}
    if any(annotations.values()):
        document["metadata"]["annotations"] = {name: value for name, value in annotations.items() if value}
    return document


class WaitingQueue:
    """The one writer of pending identities: `note` may be called from any thread, `run_once` in a loop of one."""

    def __init__(self, reader: Reader, writer: ObjectWriter, *, clock: Clock) -> None:
        """Read pending identities through ``reader``, and write through ``writer``."""
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._changed = threading.Condition()
        self._arrivals: Shares[Arrival] = Shares()

    def note(self, arrival: Arrival) -> None:
        """Queue a machine; a full queue drops the oldest machine of the source that has the most.

        The dropped machine is queued again at its next request.
        """
        with self._changed:
            self._arrivals.add(arrival.source, arrival)
            if len(self._arrivals) > _QUEUED:
                self._arrivals.remove(self._arrivals.of_the_largest())
            self._changed.notify()

    def run_once(self, idle_seconds: float = _IDLE_SECONDS) -> None:
        """Wait for machines, write a bounded number of them, then sleep; raises `ApiError`."""
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
        """Create one object, unless it was created meanwhile."""
        try:
            self._writer.create(IDENTITIES, document)
        except ApiError as error:
            if error.reason is not Reason.API_CONFLICT:
                raise
