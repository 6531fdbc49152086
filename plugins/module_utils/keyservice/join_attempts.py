# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who was refused and why, as `JoinAttempt` objects and Events: for an operator to see, never to decide by.

One object a machine and reason; machines that proved nothing share one a reason. Refusals are noted after the decision,
in a bounded queue that nobody waits for; one thread writes them, a few a second, and what it cannot write is lost. Of
each place but one there is a part that machines which nobody enrolled may take: a TPM of software proves any number of
keys, each for any reason.
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
"""Of these, the objects of machines that nobody enrolled."""
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
    """A refusal, or ``count`` of them with the latest's words; ``ek_sha256`` is empty where no key was proven.

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
        """The name of the machine's identity, whether it has one or not."""
        if not self.ek_sha256:
            return STRANGER
        return self.identity or identity_name(self.ek_sha256)

    @property
    def name(self) -> str:
        """The name of its object, for example ``ek-9f2c0123456789abcdef-pcr-mismatch``."""
        return f"{self.machine}-{self.reason.lower().replace('_', '-')}"

    @property
    def next_command(self) -> str:
        """What to run next, as `attested explain` says it."""
        return Reason[self.reason].value.command

    @property
    def is_known(self) -> bool:
        """Whether the machine is enrolled, or this is the one object that all strangers share."""
        return is_enrolled(self.machine, self.node_name)

    def after(self, earlier: Attempt | None) -> Attempt:
        """Return both as one."""
        return self if earlier is None else replace(self, count=self.count + earlier.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptWrite:
    """One object to write: ``revision`` of the one that is there, empty where none is."""

    attempt: Attempt
    document: Mapping[str, Any]
    revision: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """What is to write, and the names of what is too old or too much."""

    writes: tuple[AttemptWrite, ...]
    drops: tuple[str, ...]


class AttemptSink(Protocol):
    """Takes refusals and never keeps its caller waiting."""

    def note(self, attempt: Attempt) -> None:
        """Take ``attempt``, or lose it; raises nothing."""


def is_enrolled(machine: str, node_name: str) -> bool:
    """Say of an attempt whether it counts among those of enrolled machines.

    A machine that waits in the queue is its own node until somebody decides about it.
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
    """Return how the objects ``found`` become what is known with ``fresh``: merged, aged out, at most ``limit``.

    Of these at most ``unknown`` are of machines that nobody enrolled, of which somebody may make any number; the oldest
    of either go first.
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
    """Return the Kubernetes Event of an attempt; the same one for each time, with its count."""
    status, attempt = write.document["status"], write.attempt
    ending = f"; next: {attempt.next_command}"
    who = f"{attempt.node_name} ({attempt.machine})" if attempt.node_name else attempt.machine
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": attempt.name, "namespace": _EVENTS_NAMESPACE},
        "type": "Warning",
        "reason": "".join(word.capitalize() for word in attempt.reason.split("_")),
        "message": _shortened(f"{who} was refused, {attempt.reason}: {attempt.message.removesuffix(ending)}{ending}"),
        "count": status["count"],
        "firstTimestamp": status["firstSeen"],
        "lastTimestamp": status["lastSeen"],
        "source": {"component": _SOURCE},
        "involvedObject": {"apiVersion": API_VERSION, "kind": ATTEMPT_KIND, "name": attempt.name, "uid": uid},
    }


class AttemptWriter:
    """The one writer of attempts: `note` from any thread, `run_once` in a loop of one."""

    def __init__(self, reader: Gateway, writer: ObjectWriter, *, clock: Clock) -> None:
        """Write through ``writer`` what ``reader`` does not have yet."""
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._waiting: queue.Queue[Attempt] = queue.Queue(_WAITING)
        self._pending: dict[str, Attempt] = {}

    def note(self, attempt: Attempt) -> None:
        """Take a refusal for writing; a full queue loses it, and one half full that of a machine nobody enrolled."""
        if not attempt.is_known and self._waiting.qsize() >= _UNKNOWN_WAITING:
            return
        try:
            self._waiting.put_nowait(attempt)
        except queue.Full:
            return

    def run_once(self, idle_seconds: float = _IDLE_SECONDS) -> None:
        """Write what came, a bounded part of it, then rest; raises `ApiError`, and what was not written stays."""
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
        """Write one object and its event; one that another control plane wrote meanwhile waits for the next round."""
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
    """Return ``text``, cut in its middle where it is too long: it ends with what to do next."""
    if len(text) <= _MAX_MESSAGE:
        return text
    return text[: _MAX_MESSAGE - _KEPT_END - len(_CUT)] + _CUT + text[-_KEPT_END:]


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
