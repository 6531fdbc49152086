# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three sockets between the processes with the TPM and their network sides.

The witness, init and recovery have a socket each, and each makes quotes for its own purpose only. `identify` and
`testify` are the same on all three.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..proto.messages import message_class
from ..reasons import Reason
from ..transport.unix_rpc import Caller, RpcCall, RpcSchema, RpcService, Service
from .init_messages import MAX_REQUEST_BYTES as MAX_INIT_BYTES
from .recovery_messages import MAX_REQUEST_BYTES as MAX_RECOVERY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..core.logs import Log

WITNESS_SOCKET = "/run/attested/witness.sock"
INIT_SOCKET = "/run/attested/bootstrapper.sock"
RECOVERY_SOCKET = "/run/attested/recovery.sock"

RECOVERY_SECONDS = 300.0
"""The disk is opened within the call, and its file system may have to be checked."""

_WITNESS_SECONDS = 25.0
_INIT_SECONDS = 45.0
"""A hardware TPM needs up to a second for each answer that is queued before this one."""

_FOLLOW_SECONDS = 5.0
_MORE_BYTES = 8192
"""The size of the other fields of a socket message, next to the request from the network."""

_WITNESS = RpcSchema(
    name="witness",
    request="attested.v1.WitnessRequest",
    response="attested.v1.WitnessResponse",
    titles={"constellation": "document"},
    unlogged=frozenset({"identify"}),  # it costs nothing, and the health check calls it all the time
    workers=1,  # the TPM has one user
    question_bytes=_MORE_BYTES,
)
_INIT = RpcSchema(
    name="init",
    request="attested.v1.InitSocketRequest",
    response="attested.v1.InitSocketResponse",
    logged=("correlation_id", "source"),
    unlogged=frozenset({"identify", "follow"}),
    workers=16,
    question_bytes=MAX_INIT_BYTES + _MORE_BYTES,
)
_RECOVERY = RpcSchema(
    name="recovery",
    request="attested.v1.RecoverySocketRequest",
    response="attested.v1.RecoverySocketResponse",
    logged=("correlation_id", "source"),
    question_bytes=MAX_RECOVERY_BYTES + _MORE_BYTES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """One unchanged request from ``source``; ``exporter`` and ``spki_sha256`` (32 bytes each) name its channel."""

    request: bytes = field(repr=False)
    admin_proof: bytes = field(repr=False)
    exporter: bytes
    spki_sha256: bytes
    source: str


# The side with the TPM.


class Prover(Protocol):
    """The calls that all three sockets have."""

    def identity(self) -> bytes:
        """Return the serialised `ChallengeRequest`."""

    def testimony(self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str = "") -> bytes:
        """Return the serialised `Testimony` for a challenge."""


class Documenting(Prover, Protocol):
    """The additional call of the witness."""

    def document(self, nonce: bytes) -> bytes:
        """Return a document in Constellation's form."""


class Initiating(Prover, Protocol):
    """The additional calls of init."""

    def begin(self, begin: Begin) -> bytes:
        """Return the handle of the job of a request."""

    def follow(self, handle: bytes, seen: int, *, wait_seconds: float) -> tuple[tuple[bytes, ...], bool]:
        """Return the job's messages after the first ``seen`` ones, and whether the job has ended."""


class Recovering(Prover, Protocol):
    """The additional call of recovery."""

    def recover(self, begin: Begin, *, correlation_id: str) -> bytes:
        """Return the serialised `RecoverResponse` to a request."""


def witness_service(witness: Documenting, *, log: Log) -> RpcService:
    """Return the service that ``witness`` answers; each answer with a quote is a line of ``log``."""

    def constellation(asked: RpcCall, response: Any) -> None:
        response.document = witness.document(asked.message.nonce)

    return _proving(_WITNESS, witness, {"constellation": constellation}, log=log)


def init_service(handler: Initiating, *, log: Log) -> RpcService:
    """Return the service that the handler of init answers; ``log`` gets a line a request but for `follow`."""

    def begin(asked: RpcCall, response: Any) -> None:
        response.handle = handler.begin(_request_of(asked))

    def follow(asked: RpcCall, response: Any) -> None:
        one = asked.message
        answers, response.followed.ended = handler.follow(one.handle, one.seen, wait_seconds=_FOLLOW_SECONDS)
        response.followed.responses.extend(answers)

    return _proving(_INIT, handler, {"begin": begin, "follow": follow}, log=log)


def recovery_service(handler: Recovering, *, log: Log) -> RpcService:
    """Return the service that the handler of recovery answers; each request is a line of ``log``."""

    def recover(asked: RpcCall, response: Any) -> None:
        response.response = handler.recover(_request_of(asked), correlation_id=asked.request.correlation_id)

    return _proving(_RECOVERY, handler, {"recover": recover}, log=log)


def _proving(
    schema: RpcSchema, prover: Prover, more: Mapping[str, Callable[[RpcCall, Any], None]], *, log: Log
) -> RpcService:
    def identify(_asked: RpcCall, response: Any) -> None:
        response.identity = prover.identity()

    def testify(asked: RpcCall, response: Any) -> None:
        one = asked.message
        source = {"source": asked.request.source} if "source" in schema.logged else {}
        response.testimony = prover.testimony(
            one.challenge, exporter=one.exporter, spki_sha256=one.spki_sha256, **source
        )

    return RpcService(schema, {"identify": identify, "testify": testify, **more}, log=log)


def _request_of(asked: RpcCall) -> Begin:
    one = asked.message
    return Begin(
        request=one.request,
        admin_proof=one.admin_proof,
        exporter=one.exporter,
        spki_sha256=one.spki_sha256,
        source=asked.request.source,
    )


# The network side.


class MachinePort:
    """The network side's client of a process with the TPM, one connection a call.

    Every call raises the refusal it gets, WITNESS_UNREACHABLE or BOOTSTRAPPER_UNREACHABLE. Each socket has the calls of
    its own purpose: the witness has `document`, init has `begin` and `follow`, recovery has `recover`.
    """

    def __init__(self, schema: RpcSchema, service: Service) -> None:
        """Call ``service`` with the messages of ``schema``."""
        self._schema = schema
        self._caller = Caller(service, response_name=schema.response)

    async def identity(self, *, correlation_id: str) -> bytes:
        """Return the serialised `ChallengeRequest`."""
        message = self._new(correlation_id)
        message.identify.SetInParent()
        return bytes((await self._caller.call(message)).identity)

    async def testimony(
        self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str, correlation_id: str
    ) -> bytes:
        """Return the serialised `Testimony` for an unchanged challenge."""
        message = self._new(correlation_id, source)
        message.testify.challenge = challenge
        message.testify.exporter = exporter
        message.testify.spki_sha256 = spki_sha256
        return bytes((await self._caller.call(message)).testimony)

    async def document(self, nonce: bytes, *, correlation_id: str) -> bytes:
        """Return a document in Constellation's form over ``nonce``."""
        message = self._new(correlation_id)
        message.constellation.nonce = nonce
        return bytes((await self._caller.call(message)).document)

    async def begin(self, begin: Begin, *, correlation_id: str) -> bytes:
        """Return the handle of the job of an unchanged request."""
        return bytes((await self._send("begin", begin, correlation_id)).handle)

    async def follow(self, handle: bytes, seen: int) -> tuple[tuple[bytes, ...], bool]:
        """Return the job's messages after the first ``seen`` ones, and whether the job has ended."""
        message = self._new("")
        message.follow.handle = handle
        message.follow.seen = seen
        followed = (await self._caller.call(message)).followed
        return tuple(followed.responses), followed.ended

    async def recover(self, begin: Begin, *, correlation_id: str) -> bytes:
        """Return the serialised `RecoverResponse` to an unchanged request."""
        return bytes((await self._send("recover", begin, correlation_id)).response)

    async def _send(self, question: str, begin: Begin, correlation_id: str) -> Any:
        message = self._new(correlation_id, begin.source)
        one = getattr(message, question)
        one.request, one.admin_proof = begin.request, begin.admin_proof
        one.exporter, one.spki_sha256 = begin.exporter, begin.spki_sha256
        return await self._caller.call(message)

    def _new(self, correlation_id: str, source: str = "") -> Any:
        known = {"correlation_id": correlation_id, "source": source}
        return message_class(self._schema.request)(**{name: known[name] for name in self._schema.logged})


def witness_port(path: str | Path = WITNESS_SOCKET, *, timeout_seconds: float = _WITNESS_SECONDS) -> MachinePort:
    """Return the network side's client of the witness."""
    service = Service(path=path, name="the witness", absent=Reason.WITNESS_UNREACHABLE, timeout_seconds=timeout_seconds)
    return MachinePort(_WITNESS, service)


def init_port(path: str | Path = INIT_SOCKET, *, timeout_seconds: float = _INIT_SECONDS) -> MachinePort:
    """Return the network side's client of the bootstrapper."""
    service = Service(
        path=path, name="the bootstrapper", absent=Reason.BOOTSTRAPPER_UNREACHABLE, timeout_seconds=timeout_seconds
    )
    return MachinePort(_INIT, service)


def recovery_port(path: str | Path = RECOVERY_SOCKET, *, timeout_seconds: float = RECOVERY_SECONDS) -> MachinePort:
    """Return the network side's client of the process that recovers a node."""
    service = Service(
        path=path,
        name="the process that holds the TPM",
        absent=Reason.BOOTSTRAPPER_UNREACHABLE,
        timeout_seconds=timeout_seconds,
    )
    return MachinePort(_RECOVERY, service)
