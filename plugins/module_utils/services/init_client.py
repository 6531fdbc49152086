# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's side of init: judge the machine over this connection, seal the keys to it, follow its progress."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .._deps.grpc import grpc
from ..errors import Refusal, TransportError
from ..evidence.challenge import ChallengeRequest
from ..proto.messages import message_class
from ..reasons import Reason
from ..transport.binding import PROTOCOL_VERSION, Purpose
from ..transport.client import open_connection, requested_pause
from ..transport.server_check import UnknownServer
from .init_admin import prove_admin
from .init_messages import ADMIN_METADATA, IDENTIFY, INIT, TESTIFY, Failure, Progress, Success, parse_response
from .judge import Received, judge
from .verification_exchange import Testimony

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

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
