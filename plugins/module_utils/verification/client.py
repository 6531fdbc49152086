# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking nodes for evidence over their verification service: one connection a node, judged by the caller's policy.

    connect (any certificate) → Identify → challenge → Testify → ten steps over this very channel

Nothing of the server is known beforehand and nothing of it is believed: what the evidence does not bind is refused.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .._deps.grpc import grpc
from ..atls import PROTOCOL_VERSION
from ..atls.client import open_connection
from ..atls.pause import told_pause
from ..atls.server_check import UnknownServer
from ..attestation import ChallengeRequest
from ..errors import TransportError
from ..proto import message_class
from ..reasons import Reason
from .exchange import IDENTIFY, TESTIFY, Testimony
from .judge import Heard

if TYPE_CHECKING:
    from ..atls.client import AttestedConnection
    from .judge import Question

PORT = 9091
CALL_SECONDS = 40.0
"""A busy node lets eight callers stand in line, and rests its TPM in between."""

_CORRELATION = "attested-correlation-id"
_SLOW_DOWN = "RESOURCE_EXHAUSTED"
_LATER = frozenset({"DEADLINE_EXCEEDED", _SLOW_DOWN, "UNAVAILABLE"})


async def hear(endpoint: str, question: Question) -> Heard:
    """Return what the node at ``endpoint`` (host:port) testifies, not yet judged.

    Raises `TransportError` PEER_UNREACHABLE, CONNECTION_..., TLS_..., VERIFICATION_LATER (with the time to wait),
    VERIFICATION_UNAVAILABLE (time may help) and VERIFICATION_UNANSWERED, and `Refusal` for what is no message.
    """
    server = UnknownServer()
    async with open_connection(endpoint, check=server, issuer=None, clock=question.clock) as connection:
        request = ChallengeRequest.parse(await call(connection, IDENTIFY, _identify()))
        challenge, record = await asyncio.to_thread(question.challenge, request)
        sent = challenge.to_bytes()
        return Heard(
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
    """Turn a gRPC status into a reason of ours; the whole story stands in the node's log under the id."""
    status = error.code()
    trailing = dict(error.trailing_metadata() or ())
    story = f"{status.name}: {error.details()!r} (correlation id {trailing.get(_CORRELATION, 'none')})"
    pause = told_pause(trailing) if status.name == _SLOW_DOWN else 0.0
    if pause:
        later = TransportError(f"expected evidence, got {story}", reason=Reason.VERIFICATION_LATER, retryable=True)
        later.retry_after_seconds = pause
        return later
    if status.name in _LATER:
        return TransportError(f"expected evidence, got {story}", reason=Reason.VERIFICATION_UNAVAILABLE, retryable=True)
    return TransportError(f"expected evidence, got {story}", reason=Reason.VERIFICATION_UNANSWERED)
