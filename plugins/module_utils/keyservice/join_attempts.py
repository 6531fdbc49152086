# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refused machines: as `JoinAttempt` objects and Events, which no decision uses, and as a queue that waits for admins.

There is one object for each machine and reason; machines that proved nothing share one object for each reason. After
the decision a refusal goes into a bounded queue, without waiting. One thread writes a few refusals a second; a full
queue loses refusals. Machines that are not enrolled may use only a part of the queue and of the objects, because a
software TPM proves any number of keys.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ..core.rate import Shares
from ..errors import ApiError
from ..policy.identity import Admission, NodeIdentity, Role, identity_name
from ..policy.manifest import API_VERSION, render_identity
from ..reasons import Coarse, Reason
from .kube_api import ATTEMPTS, IDENTITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..core.host import Clock
    from ..errors import AttestedError
    from .attestation_state import RefusalKeeper
    from .kube_api import Gateway, ObjectWriter, Reader


# The queue of unknown machines that proved their key and wait for an admin, if the site chose ``queue``.
#
# A waiting machine is a `NodeIdentity` with the admission `Pending`. Its node name is the object's name until an admin
# sets another. One thread creates it from a bounded queue after the machine was refused; the machine gets no ticket.

CLAIM = "attested-kubernetes.dev/claims-node"
"""Annotation with the node name that the machine requested: a hint for the admin, not used in decisions."""

SOURCE = "attested-kubernetes.dev/source"
"""Annotation with the machine's source (`core.rate.source_of`): it decides which machines are dropped first."""

MAX_WAITING = 100

_QUEUED = 64
_QUEUED_A_ROUND = 10
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
            taken = list(self._arrivals)[:_QUEUED_A_ROUND]
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


ATTEMPT_KIND = "JoinAttempt"
STRANGER = "stranger"
MAX_ATTEMPTS = 100
MAX_UNKNOWN = 30
"""Of these, the maximum for machines that are not enrolled."""
ATTEMPT_AGE = timedelta(days=14)

_MAX_MESSAGE = 1000
_KEPT_END = 200
_CUT = " … "
_MAX_CORRELATION = 64
_WAITING = 256
_UNKNOWN_WAITING = 128
_WRITES_A_ROUND = 20
_EVENTS_NAMESPACE = "default"
_SOURCE = "attested-key-service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A refusal, or ``count`` refusals with the latest message; ``ek_sha256`` is empty if no key was proven.

    ``identity``: the name of the identity that has this key as its alias, else empty.
    """

    reason: str
    message: str
    at: datetime
    correlation_id: str = ""
    ek_sha256: str = ""
    node_name: str = ""
    identity: str = ""
    count: int = 1

    @property
    def machine(self) -> str:
        """The name that the machine's identity has or would have."""
        if not self.ek_sha256:
            return STRANGER
        return self.identity or identity_name(self.ek_sha256)

    @property
    def name(self) -> str:
        """The name of the attempt's object, for example ``ek-9f2c0123456789abcdef-pcr-mismatch``."""
        return f"{self.machine}-{self.reason.lower().replace('_', '-')}"

    @property
    def next_command(self) -> str:
        """The command to run next, as `attested explain` shows it."""
        return Reason[self.reason].value.command

    @property
    def is_known(self) -> bool:
        """Whether the machine is enrolled, or the object is the one that all unproven machines share."""
        return is_enrolled(self.machine, self.node_name)

    def after(self, earlier: Attempt | None) -> Attempt:
        """Return this attempt with the count of ``earlier`` added."""
        return self if earlier is None else replace(self, count=self.count + earlier.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptWrite:
    """One object to write; ``revision`` and ``uid`` are those of the existing object, empty if there is none."""

    attempt: Attempt
    document: Mapping[str, Any]
    revision: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """The objects to write, and the names of the objects to delete."""

    writes: tuple[AttemptWrite, ...]
    drops: tuple[str, ...]


class AttemptSink(Protocol):
    """Receives refusals without blocking the caller."""

    def note(self, attempt: Attempt) -> None:
        """Queue ``attempt``, or drop it; raises nothing."""


def is_enrolled(machine: str, node_name: str) -> bool:
    """Return whether an attempt counts as one of an enrolled machine.

    A machine in the queue has its identity's name as node name until an admin decides about it.
    """
    return machine == STRANGER or node_name not in {"", machine}


def plan_attempts(
    found: Sequence[Mapping[str, Any]],
    fresh: Iterable[Attempt],
    *,
    now: datetime,
    limit: int = MAX_ATTEMPTS,
    unknown: int = MAX_UNKNOWN,
) -> AttemptPlan:
    """Return the writes that merge ``fresh`` into the objects ``found``, and the deletions: old ones, over ``limit``.

    At most ``unknown`` objects are of machines that are not enrolled, because an attacker can create any number of
    these machines. The oldest objects of each group are deleted first.
    """
    known = {one["metadata"]["name"]: one for one in found}
    writes = {one.name: _write(one, known.get(one.name)) for one in fresh}
    status = {name: one["status"] for name, one in known.items()}
    status |= {name: one.document["status"] for name, one in writes.items()}
    oldest = _timestamp(now - ATTEMPT_AGE)
    kept = sorted((name for name, one in status.items() if one["lastSeen"] >= oldest), key=_last_seen(status))
    ours = [name for name in kept if is_enrolled(status[name]["machine"], status[name].get("nodeName", ""))][-limit:]
    others = [name for name in kept if name not in set(ours)]
    staying = {*ours, *others[max(0, len(others) - min(unknown, limit - len(ours))) :]}
    return AttemptPlan(
        writes=tuple(one for name, one in writes.items() if name in staying),
        drops=tuple(sorted(name for name in known if name not in staying)),
    )


def _last_seen(status: Mapping[str, Any]) -> Callable[[str], str]:
    return lambda name: str(status[name]["lastSeen"])


def render_event(write: AttemptWrite, uid: str) -> dict[str, Any]:
    """Return the Kubernetes Event of an attempt: one Event for all repetitions, with their count."""
    status, attempt = write.document["status"], write.attempt
    ending = f"; next: {attempt.next_command}"
    machine = f"{attempt.node_name} ({attempt.machine})" if attempt.node_name else attempt.machine
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": attempt.name, "namespace": _EVENTS_NAMESPACE},
        "type": "Warning",
        "reason": "".join(word.capitalize() for word in attempt.reason.split("_")),
        "message": _shortened(
            f"{machine} was refused, {attempt.reason}: {attempt.message.removesuffix(ending)}{ending}"
        ),
        "count": status["count"],
        "firstTimestamp": status["firstSeen"],
        "lastTimestamp": status["lastSeen"],
        "source": {"component": _SOURCE},
        "involvedObject": {"apiVersion": API_VERSION, "kind": ATTEMPT_KIND, "name": attempt.name, "uid": uid},
    }


class AttemptWriter:
    """The one writer of attempts: `note` may be called from any thread, `run_once` in a loop of one thread."""

    def __init__(self, reader: Gateway, writer: ObjectWriter, *, clock: Clock) -> None:
        """Read existing attempts through ``reader``, and write through ``writer``."""
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._waiting: queue.Queue[Attempt] = queue.Queue(_WAITING)
        self._pending: dict[str, Attempt] = {}

    def note(self, attempt: Attempt) -> None:
        """Queue a refusal, or drop it if the queue is full; if half full, for machines that are not enrolled."""
        if not attempt.is_known and self._waiting.qsize() >= _UNKNOWN_WAITING:
            return
        try:
            self._waiting.put_nowait(attempt)
        except queue.Full:
            return

    def run_once(self, idle_seconds: float = _IDLE_SECONDS) -> None:
        """Wait for attempts, write a bounded number of them, then sleep; raises `ApiError` and keeps the others."""
        self._collect(0 if self._pending else idle_seconds)
        try:
            self._write()
        finally:
            self._clock.sleep(_ROUND_SECONDS)

    def _collect(self, idle_seconds: float) -> None:
        try:
            self._take(self._waiting.get(timeout=idle_seconds) if idle_seconds else self._waiting.get_nowait())
            while True:
                self._take(self._waiting.get_nowait())
        except queue.Empty:
            return

    def _take(self, attempt: Attempt) -> None:
        if attempt.name not in self._pending:
            same = sum(one.is_known == attempt.is_known for one in self._pending.values())
            if same >= (MAX_ATTEMPTS if attempt.is_known else MAX_UNKNOWN):
                return
        self._pending[attempt.name] = attempt.after(self._pending.get(attempt.name))

    def _write(self) -> None:
        plan = plan_attempts(self._reader.objects(ATTEMPTS), self._pending.values(), now=self._clock.now())
        for name in plan.drops[:_WRITES_A_ROUND]:
            self._writer.delete(ATTEMPTS, name)
        planned = {one.attempt.name for one in plan.writes}
        self._pending = {name: one for name, one in self._pending.items() if name in planned}
        for write in plan.writes[:_WRITES_A_ROUND]:
            self._write_one(write)

    def _write_one(self, write: AttemptWrite) -> None:
        """Write one object and its Event; after a conflict with another control plane the next round tries again."""
        name = write.attempt.name
        try:
            if write.revision:
                self._writer.merge(ATTEMPTS, name, write.document, revision=write.revision)
                uid = write.uid
            else:
                uid = self._writer.create(ATTEMPTS, write.document)
        except ApiError as error:
            if error.reason is not Reason.API_CONFLICT:
                raise
            return
        del self._pending[name]
        self._writer.record_event(render_event(write, uid))


def _write(attempt: Attempt, found: Mapping[str, Any] | None) -> AttemptWrite:
    status = found["status"] if found else {}
    document = {
        "apiVersion": API_VERSION,
        "kind": ATTEMPT_KIND,
        "metadata": {"name": attempt.name},
        "status": {
            "machine": attempt.machine,
            **({"ekSha256": attempt.ek_sha256} if attempt.ek_sha256 else {}),
            **({"nodeName": attempt.node_name} if attempt.node_name else {}),
            "reason": attempt.reason,
            "message": _shortened(attempt.message),
            "next": attempt.next_command,
            "correlationId": attempt.correlation_id[:_MAX_CORRELATION],
            "count": attempt.count + int(status.get("count", 0)),
            "firstSeen": status.get("firstSeen", _timestamp(attempt.at)),
            "lastSeen": _timestamp(attempt.at),
        },
    }
    metadata = found["metadata"] if found else {}
    return AttemptWrite(
        attempt=attempt,
        document=document,
        revision=metadata.get("resourceVersion", ""),
        uid=metadata.get("uid", ""),
    )


def _shortened(text: str) -> str:
    """Return ``text``, cut in the middle if it is too long: its end says what to do next."""
    if len(text) <= _MAX_MESSAGE:
        return text
    return text[: _MAX_MESSAGE - _KEPT_END - len(_CUT)] + _CUT + text[-_KEPT_END:]


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Report a refusal after the decision: as a join attempt, in the queue of unknown machines, in a node's identity.

_ATTEMPTED = frozenset({Coarse.INVALID, Coarse.REFUSED})


class RefusalReporter:
    """Passes refusals to the parts that write them."""

    def __init__(
        self, attempts: AttemptSink, *, waiting: WaitingQueue | None = None, keeper: RefusalKeeper | None = None
    ) -> None:
        """Report refusals to ``attempts``, and unknown machines to ``waiting`` if the site queues them.

        Both only queue the report. ``keeper`` writes the refusal of a node at once, because renewals depend on it.
        """
        self._attempts = attempts
        self._waiting = waiting
        self._keeper = keeper

    def report(self, error: AttestedError, fields: Mapping[str, object], *, now: datetime) -> None:
        """Report a refusal with the ``fields`` of its log line; faults of the cluster are not join attempts."""
        known = {name: str(value) for name, value in fields.items()}
        if error.reason.value.coarse in _ATTEMPTED:
            self._attempts.note(_attempt(error, known, now=now))
        if self._keeper is not None and "proven" in known:
            self._keeper.note(error, ek_sha256=known["ek"], now=now)
        if self._waiting is not None and error.reason is Reason.IDENTITY_UNKNOWN and "proven" in known:
            arrival = Arrival(
                ek_sha256=known["ek"], claims=known.get("claims", ""), at=now, source=known.get("source", "")
            )
            self._waiting.note(arrival)


def _attempt(error: AttestedError, fields: Mapping[str, str], *, now: datetime) -> Attempt:
    """Return the attempt; a machine that did not prove its key counts as a stranger, whatever it claims."""
    proven = "proven" in fields
    return Attempt(
        reason=error.code,
        message=error.message,
        at=now,
        correlation_id=fields.get("correlation_id", ""),
        ek_sha256=fields.get("ek", "") if proven else "",
        node_name=fields.get("node", "") if proven else "",
        identity=fields.get("identity", "") if proven else "",
    )
