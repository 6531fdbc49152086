# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write refusals as `JoinAttempt` objects and Events: information for operators, no decision uses them.

There is one object for each machine and reason; machines that proved nothing share one object for each reason. After
the decision a refusal goes into a bounded queue, without waiting. One thread writes a few refusals a second; a full
queue loses refusals. Machines that are not enrolled may use only a part of the queue and of the objects, because a
software TPM proves any number of keys.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ApiError
from ..policy.identity import identity_name
from ..policy.manifest import API_VERSION
from ..reasons import Reason
from .kube_api import ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..core.host import Clock
    from .kube_api import Gateway, ObjectWriter

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
_ROUND_SECONDS = 1.0
_IDLE_SECONDS = 3600.0
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
