# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's side of init: judge the machine over this connection, seal the keys to it, follow its progress."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from .._deps.grpc import grpc
from ..errors import Refusal, TransportError
from ..evidence.challenge import ChallengeRequest
from ..proto.messages import message_class
from ..reasons import Reason
from ..transport.binding import PROTOCOL_VERSION, Purpose
from ..transport.certificate import UnknownServer
from ..transport.client import open_connection, requested_pause
from .init_admin import prove_admin
from .init_messages import ADMIN_METADATA, IDENTIFY, INIT, TESTIFY, Failure, Progress, Success, parse_response
from .judge import Received, judge
from .verification_exchange import Testimony

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from ..core.host import Clock
    from ..evidence.verify import VerifiedNode
    from ..keyservice.key_bundle import KeyBundle
    from ..transport.client import AttestedConnection
    from .init_admin import AdminKey
    from .init_messages import InitOrder
    from .judge import Question


PORT = 9000
CALL_SECONDS = 60.0
INIT_SECONDS = 3600.0

_CORRELATION = "attested-correlation-id"
_MAX_LOG = 1 << 16
_LATER = frozenset({"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The input of one init: ``order`` without exchange and box, the keys to seal, the admin's key, the node's name."""

    order: InitOrder
    bundle: KeyBundle = field(repr=False)
    admin: AdminKey
    node: str


class InitFailed(Refusal):
    """The machine reported a failure: its reason, with the stage and the last log lines of the step."""

    def __init__(self, failure: Failure, log: str) -> None:
        """Store the reported failure with its log."""
        reason = Reason.__members__.get(failure.code, Reason.INTERNAL)
        super().__init__(failure.message, reason=reason, hint=failure.hint)
        self.failure = replace(failure, log=log)


async def initiate(
    endpoint: str, wish: Wish, question: Question, *, judged: Callable[[VerifiedNode], None] | None = None
) -> AsyncGenerator[Progress | Success, None]:
    """Yield the progress of the machine at ``endpoint`` (host:port), and its `Success` last.

    No secret is sent before the policy of ``question`` has accepted the machine as a registered control plane;
    ``judged`` is called between the two.
    Raises what judging raises, ROLE_NOT_REGISTERED, `InitFailed` and `TransportError`. If that is ``retryable``, the
    same call again finds the running job, or continues the work at the step where it stopped.
    """
    server = UnknownServer()
    async with open_connection(endpoint, check=server, issuer=None, clock=question.clock) as connection:
        verified, challenge_id = await proven(connection, server, question, node=wish.node)
        verified.require_control_plane()
        if judged is not None:
            judged(verified)
        sealed = verified.machine.seal(wish.bundle.to_bytes())
        request = replace(wish.order, challenge_id=challenge_id, sealed=sealed).to_bytes()
        proof = prove_admin(wish.admin, binding=verified.machine.binding, request=request)
        async for one in _followed(connection, request, proof):
            yield one


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The two calls of a verification, their purpose, and the reasons of a retryable and of a final failure."""

    identify: str = IDENTIFY
    testify: str = TESTIFY
    purpose: Purpose = Purpose.INIT
    later: Reason = Reason.INIT_BROKEN_OFF
    refused: Reason = Reason.ADMIN_REQUEST_REFUSED


_INIT = Calls()


async def proven(
    connection: AttestedConnection, server: UnknownServer, question: Question, *, node: str, calls: Calls = _INIT
) -> tuple[VerifiedNode, bytes]:
    """Return ``node``, judged over this connection, and the id of the exchange; raises what judging raises."""
    identity = ChallengeRequest.parse(await call_unary(connection, calls.identify, _identify(), calls=calls))
    challenge, record = await asyncio.to_thread(question.challenge, identity)
    sent = challenge.to_bytes()
    received = Received(
        record=record,
        challenge=sent,
        testimony=Testimony.parse(await call_unary(connection, calls.testify, sent, calls=calls)),
        exporter=connection.exporter,
        spki_sha256=server.spki_sha256,
        now=question.clock.now(),
        purpose=calls.purpose,
    )
    return judge(received, question, node=node), challenge.id


async def _followed(connection: AttestedConnection, request: bytes, proof: bytes) -> AsyncIterator[Progress | Success]:
    call = connection.channel().unary_stream(INIT)(request, metadata=((ADMIN_METADATA, proof),), timeout=INIT_SECONDS)
    failure, log = None, ""
    try:
        async for data in call:
            response = parse_response(data)
            if isinstance(response, Failure):
                failure = response
            elif isinstance(response, str):
                log = (log + response)[-_MAX_LOG:]
            else:
                yield response
                if isinstance(response, Success):
                    return
    except grpc.aio.AioRpcError as error:
        raise connection.error or _translated(error, _INIT) from error
    if failure is not None:
        raise InitFailed(failure, log)
    raise TransportError("expected success or failure, the stream ended", reason=Reason.INIT_BROKEN_OFF, retryable=True)


async def call_unary(
    connection: AttestedConnection,
    method: str,
    request: bytes,
    *,
    calls: Calls = _INIT,
    metadata: tuple[tuple[str, bytes], ...] = (),
    timeout_seconds: float = CALL_SECONDS,
) -> bytes:
    """Return the answer to one unary call; raises `TransportError`."""
    try:
        call = connection.channel().unary_unary(method)
        return bytes(await call(request, metadata=metadata, timeout=timeout_seconds))
    except grpc.aio.AioRpcError as error:
        raise connection.error or _translated(error, calls) from error


def _identify() -> bytes:
    return bytes(message_class("attested.v1.IdentifyRequest")(protocol_version=PROTOCOL_VERSION).SerializeToString())


def _translated(error: Any, calls: Calls) -> TransportError:
    status = error.code()
    trailing = dict(error.trailing_metadata() or ())
    story = f"{status.name}: {error.details()!r} (correlation id {trailing.get(_CORRELATION, 'none')})"
    later = status.name in _LATER
    found = TransportError(
        f"expected the machine to continue, got {story}",
        reason=calls.later if later else calls.refused,
        retryable=later,
    )
    found.retry_after_seconds = requested_pause(trailing)
    return found


# Follow an init to its end: connect again when the connection breaks, and report each progress message once.
#
# If the same request is sent again, the machine repeats the messages of its job. So a new connection continues where
# the last one ended.

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0
LONGEST_LOOK_SECONDS = 60.0
_LOOK_SECONDS = 5.0

_UNREACHABLE = frozenset({Reason.CONNECTION_CLOSED, Reason.CONNECTION_TIMEOUT, Reason.PEER_UNREACHABLE})
_HINT = (
    "Look at the machine: systemctl status attested-bootstrapper. It listens only if it may be initialised, and not "
    "once it is a node: then ansible-playbook attested.kubernetes.init -e over_ssh=true. Or run init over ssh alone, "
    "with attested_bootstrapper: false."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a machine may be silent before the init fails, and how long the whole init may take."""

    silent_seconds: float
    total_seconds: float = 3600.0


def waits_for_init(machine: str, server: str, *, clock: Clock, wait_seconds: float) -> bool:
    """Return whether the init service of ``machine`` answers while the API server ``server`` does not (both HOST:PORT).

    This is the state of a machine that was reset, or booted differently, after the admin got a certificate of its
    cluster. While neither answers, as during a reboot, both are tried again for ``wait_seconds``, a minute at most.
    """
    deadline = clock.monotonic() + min(wait_seconds, LONGEST_LOOK_SECONDS)
    while not _answers(server):
        if _answers(machine):
            return True
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(FIRST_PAUSE_SECONDS)
    return False


def _answers(endpoint: str) -> bool:
    """Return whether a TLS server answers; a load balancer without a backend accepts a TCP connection as well."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _colon, port = endpoint.rpartition(":")
    try:
        plain = socket.create_connection((host.strip("[]"), int(port)), timeout=_LOOK_SECONDS)
        with plain, context.wrap_socket(plain):
            return True
    except (OSError, ValueError):
        return False


class Listener(Protocol):
    """Receives the progress of an init."""

    def progress(self, one: Progress) -> None:
        """Receive a task that the machine begins; each task once."""

    def waits(self, error: TransportError, pause_seconds: float) -> None:
        """Receive the error after which the machine is called again, and the pause before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedTask:
    """One task of the machine and its duration."""

    stage: str
    task: str
    seconds: float


@dataclass(slots=True)
class History:
    """The progress messages of one job, received over several connections."""

    progress: list[Progress] = field(default_factory=list)
    _at: int = 0

    def begin_again(self) -> None:
        """Expect all messages again from the first one."""
        self._at = 0

    def add(self, one: Progress) -> bool:
        """Store a message and return whether it is new; one that differs from before comes from another job."""
        known = self._at < len(self.progress) and self.progress[self._at] == one
        if not known:
            self.progress[self._at :] = [one]
        self._at += 1
        return not known

    def tasks(self, *, last_seconds: float) -> tuple[TimedTask, ...]:
        """Return each task with its duration: until the next one began; the last one took ``last_seconds``."""
        begins = [one.elapsed_seconds for one in self.progress]
        times = [after - before for before, after in itertools.pairwise(begins)]
        return tuple(
            TimedTask(stage=one.stage, task=one.task, seconds=max(0.0, seconds))
            for one, seconds in zip(self.progress, [*times, last_seconds], strict=False)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A successful init: the machine's last message, and its tasks."""

    success: Success
    tasks: tuple[TimedTask, ...]


class Pursuit:
    """Follows one init to its end."""

    def __init__(
        self,
        patience: Patience,
        *,
        clock: Clock,
        listener: Listener,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Start the clock of ``patience``; ``sleep`` waits without blocking the event loop."""
        self._patience = patience
        self._clock = clock
        self._listener = listener
        self._sleep = sleep
        self._history = History()
        self._begun = self._progress_at = clock.monotonic()
        self._tries = 0

    async def follow(self, connect: Callable[[], AsyncGenerator[Progress | Success, None]]) -> Ended:
        """Return the successful end; ``connect`` begins a conversation with the machine (`init_client.initiate`).

        After a ``retryable`` `TransportError` the machine is called again, with growing pauses. The error is raised
        once the machine has reported nothing new for ``silent_seconds``; every other error is raised at once.
        """
        while True:
            try:
                success = await self._conversation(connect)
            except TransportError as error:
                await self._wait_after(error)
            else:
                last = self._clock.monotonic() - self._progress_at
                return Ended(success=success, tasks=self._history.tasks(last_seconds=last))

    async def _conversation(self, connect: Callable[[], AsyncGenerator[Progress | Success, None]]) -> Success:
        self._history.begin_again()
        async with aclosing(connect()) as responses:
            async for one in responses:
                if isinstance(one, Success):
                    return one
                if self._history.add(one):
                    self._progress_at, self._tries = self._clock.monotonic(), 0
                    self._listener.progress(one)
        raise TransportError("expected success or failure, got an end", reason=Reason.INIT_BROKEN_OFF, retryable=True)

    async def _wait_after(self, error: TransportError) -> None:
        """Wait before the next attempt; raises ``error`` if no attempt is left."""
        now = self._clock.monotonic()
        pause = max(pause_seconds(self._tries), error.retry_after_seconds)
        ends = min(self._progress_at + self._patience.silent_seconds, self._begun + self._patience.total_seconds)
        if not error.retryable or now + pause > ends:
            if error.reason in _UNREACHABLE:
                error.hint = _HINT
            raise error
        self._tries += 1
        self._listener.waits(error, pause)
        await self._sleep(pause)


def pause_seconds(tries: int) -> float:
    """Return the seconds to wait after ``tries`` failed attempts: 1, 2, 4, 8, then always 15."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(tries, 8), LONGEST_PAUSE_SECONDS)
