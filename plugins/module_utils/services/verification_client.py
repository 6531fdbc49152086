# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify a fleet over the nodes' verification services: a few nodes at a time, each one until it answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._deps.grpc import grpc
from ..errors import AttestedError, TransportError
from ..evidence.challenge import ChallengeRequest
from ..proto.messages import message_class
from ..reasons import Reason
from ..transport.binding import PROTOCOL_VERSION
from ..transport.certificate import UnknownServer
from ..transport.client import open_connection, requested_pause
from .judge import Finding, Received, found, judge, machine_of, not_found, proven_machine
from .verification_exchange import IDENTIFY, TESTIFY, Testimony

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..evidence.verify import VerifiedMachine
    from ..transport.client import AttestedConnection
    from .judge import Question


# One connection a node, judged by the caller's policy:
#
#     connect (any certificate) → Identify → challenge → Testify → ten steps over this channel
#
# The server is not known beforehand and not trusted: only what the evidence binds is accepted.

PORT = 9091
CALL_SECONDS = 40.0
"""A busy node queues eight callers, and pauses its TPM between them."""

_CORRELATION = "attested-correlation-id"
_SLOW_DOWN = "RESOURCE_EXHAUSTED"
_LATER = frozenset({"DEADLINE_EXCEEDED", _SLOW_DOWN, "UNAVAILABLE"})


async def fetch_testimony(endpoint: str, question: Question) -> Received:
    """Return the testimony of the node at ``endpoint`` (host:port), not yet judged.

    Raises `TransportError` PEER_UNREACHABLE, CONNECTION_..., TLS_..., VERIFICATION_LATER (with the time to wait),
    VERIFICATION_UNAVAILABLE (time may help) and VERIFICATION_UNANSWERED, and `Refusal` for a malformed message.
    """
    server = UnknownServer()
    async with open_connection(endpoint, check=server, issuer=None, clock=question.clock) as connection:
        request = ChallengeRequest.parse(await call(connection, IDENTIFY, _identify()))
        challenge, record = await asyncio.to_thread(question.challenge, request)
        sent = challenge.to_bytes()
        return Received(
            record=record,
            challenge=sent,
            testimony=Testimony.parse(await call(connection, TESTIFY, sent)),
            exporter=connection.exporter,
            spki_sha256=server.spki_sha256,
            now=question.clock.now(),
        )


async def call(connection: AttestedConnection, method: str, request: bytes) -> bytes:
    """Return the answer to one unary call; raises `TransportError`."""
    try:
        return bytes(await connection.channel().unary_unary(method)(request, timeout=CALL_SECONDS))
    except grpc.aio.AioRpcError as error:
        raise connection.error or translated(error) from error


def _identify() -> bytes:
    return bytes(message_class("attested.v1.IdentifyRequest")(protocol_version=PROTOCOL_VERSION).SerializeToString())


def translated(error: Any) -> TransportError:
    """Return the error for a gRPC status; the node's log has the details under the correlation id."""
    status = error.code()
    trailing = dict(error.trailing_metadata() or ())
    story = f"{status.name}: {error.details()!r} (correlation id {trailing.get(_CORRELATION, 'none')})"
    pause = requested_pause(trailing) if status.name == _SLOW_DOWN else 0.0
    if pause:
        later = TransportError(f"expected evidence, got {story}", reason=Reason.VERIFICATION_LATER, retryable=True)
        later.retry_after_seconds = pause
        return later
    if status.name in _LATER:
        return TransportError(f"expected evidence, got {story}", reason=Reason.VERIFICATION_UNAVAILABLE, retryable=True)
    return TransportError(f"expected evidence, got {story}", reason=Reason.VERIFICATION_UNANSWERED)


OVER = "service"
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The number of nodes at the same time, and how long a busy node is tried again."""

    parallel: int = 16
    seconds: float = 20.0


async def examine_fleet(
    endpoints: Mapping[str, str], question: Question, *, patience: Patience, report: Callable[[Finding], None]
) -> tuple[Finding, ...]:
    """Return the finding of each node (name to host:port), in their order; ``report`` is called with each at once.

    Raises nothing for a node: its failure is its finding.
    """
    places = asyncio.Semaphore(patience.parallel)

    async def one(name: str, endpoint: str) -> Finding:
        async with places:
            finding = await examine(name, endpoint, question, seconds=patience.seconds)
        report(finding)
        return finding

    return tuple(await asyncio.gather(*(one(name, endpoint) for name, endpoint in endpoints.items())))


async def examine(name: str, endpoint: str, question: Question, *, seconds: float) -> Finding:
    """Return the finding of one node; it is tried again for ``seconds`` while time alone may help."""
    try:
        received = await _fetch_patiently(endpoint, question, until=question.clock.monotonic() + seconds)
    except AttestedError as error:
        error.message = f"{endpoint}: {error.message}"
        return not_found(name, error, over=OVER)
    return await asyncio.to_thread(_judged, name, received, question)


async def fetch_machines(
    endpoints: Mapping[str, str], question: Question, *, patience: Patience
) -> dict[str, VerifiedMachine | AttestedError]:
    """Return for each node the machine that it proves to be, without a profile, or the error."""
    places = asyncio.Semaphore(patience.parallel)

    async def one(name: str, endpoint: str) -> VerifiedMachine | AttestedError:
        try:
            async with places:
                received = await _fetch_patiently(
                    endpoint, question, until=question.clock.monotonic() + patience.seconds
                )
            return await asyncio.to_thread(machine_of, received, question, node=name)
        except AttestedError as error:
            return error

    answers = await asyncio.gather(*(one(name, endpoint) for name, endpoint in endpoints.items()))
    return dict(zip(endpoints, answers, strict=True))


async def _fetch_patiently(endpoint: str, question: Question, *, until: float) -> Received:
    """Return the testimony of a node; a requested pause is kept, twice as long each time.

    A verification is two calls: after the requested pause alone, the limit would allow the first call but not the
    second.
    """
    patience = 1
    while True:
        try:
            return await fetch_testimony(endpoint, question)
        except TransportError as error:
            pause = max(_PAUSE_SECONDS, patience * error.retry_after_seconds)
            patience *= 2 if error.retry_after_seconds else 1
            if not error.retryable or question.clock.monotonic() + pause > until:
                raise
        await asyncio.sleep(pause)


def _judged(name: str, received: Received, question: Question) -> Finding:
    try:
        return found(judge(received, question, node=name), over=OVER)
    except AttestedError as error:
        return not_found(name, error, over=OVER, machine=proven_machine(received, question))
