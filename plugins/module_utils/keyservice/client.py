# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Speaking to the key service over its unix socket.

The join service keeps its connections: a new one for each call cost both sides more than the call. One that the other
side has closed meanwhile is replaced, and the call is sent again: a challenge can be answered once only, so a repeated
release is refused rather than given twice.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import KeyServiceError
from ..proto.messages import message_class
from ..reasons import Reason
from .framing import REQUEST, SOCKET, answer_of, frame, frame_length, read_frame

if TYPE_CHECKING:
    from pathlib import Path

CALL_SECONDS = 20.0

_KEEP_SECONDS = 5.0
"""The other side closes a connection that says nothing for 10 s."""
_KEEP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """What the relay knows of the attested connection behind a call (see `atls.claims.Claims`).

    ``source`` is what the peer's address counts as; it bounds and decides nothing.
    """

    exporter: bytes
    spki_sha256: bytes
    peer_nonce: bytes
    evidence: bytes
    source: str = ""

    def to_message(self) -> Any:
        """Return the message of the wire."""
        return message_class("attested.v1.Channel")(
            exporter=self.exporter,
            spki_sha256=self.spki_sha256,
            peer_nonce=self.peer_nonce,
            evidence=self.evidence,
            source=self.source,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketAnswer:
    """A ticket with its signature, and the node's name for the log."""

    ticket: bytes
    signature: bytes
    node_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthAnswer:
    """Whether the key service can release, in which state it is, and for which cluster (empty while closed).

    ``metrics``: its figures as Prometheus reads them.
    """

    ready: bool
    state: str
    cluster_id: bytes
    metrics: bytes = b""


@dataclass(slots=True)
class _Kept:
    """An open connection, and the time of its last answer."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    since: float = 0.0

    def is_usable(self, now: float) -> bool:
        """Say whether the other side may still listen."""
        return not self.reader.at_eof() and not self.writer.is_closing() and now - self.since < _KEEP_SECONDS


class AsyncKeyClient:
    """The join service's side; every call raises what the key service refused with, or KEY_SERVICE_UNREACHABLE."""

    def __init__(self, path: str | Path = SOCKET, *, timeout_seconds: float = CALL_SECONDS) -> None:
        """Call at ``path``."""
        self._path = str(path)
        self._timeout_seconds = timeout_seconds
        self._kept: list[_Kept] = []

    async def challenge(self, channel: Channel, request: bytes, *, correlation_id: str) -> bytes:
        """Return the `ChallengeResponse` for a `ChallengeRequest`, both as bytes."""
        message = _request(correlation_id)
        message.challenge.channel.CopyFrom(channel.to_message())
        message.challenge.request = request
        return bytes((await self._call(message)).challenge)

    async def release(self, channel: Channel, request: bytes, binding: bytes, *, correlation_id: str) -> TicketAnswer:
        """Return the ticket for a request as it was sent and its `Binding`."""
        message = _request(correlation_id)
        message.release.channel.CopyFrom(channel.to_message())
        message.release.request = request
        message.release.binding = binding
        answer = (await self._call(message)).ticket
        return TicketAnswer(ticket=answer.ticket, signature=answer.signature, node_name=answer.node_name)

    async def reattest(
        self, channel: Channel, request: bytes, binding: bytes, *, correlation_id: str
    ) -> tuple[bytes, str]:
        """Return the `ReattestResponse` for a request as it was sent and its `Binding`, and the node's name."""
        message = _request(correlation_id)
        message.reattest.channel.CopyFrom(channel.to_message())
        message.reattest.request = request
        message.reattest.binding = binding
        answer = (await self._call(message)).reattested
        return bytes(answer.response), str(answer.node_name)

    async def server_certificate(self, request: bytes, *, correlation_id: str) -> bytes:
        """Return the PEM chain (leaf, join CA) for a certificate request in DER."""
        message = _request(correlation_id)
        message.server_certificate.certificate_request = request
        return bytes((await self._call(message)).certificate_chain)

    async def health(self) -> HealthAnswer:
        """Return the state of the key service."""
        return _health((await self._call(_health_request())).health)

    async def _call(self, message: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return answer_of(await self._exchange(frame(message.SerializeToString())))
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            raise _unreachable(self._path, error) from error

    async def _exchange(self, sent: bytes) -> bytes:
        kept = self._take()
        if kept is not None:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                return await self._converse(kept, sent)
        return await self._converse(_Kept(*await asyncio.open_unix_connection(self._path)), sent)

    async def _converse(self, connection: _Kept, sent: bytes) -> bytes:
        """Say and hear one message; whoever gives up the call closes its connection, so that the other side knows."""
        try:
            connection.writer.write(sent)
            await connection.writer.drain()
            answer = await read_frame(connection.reader)
        except BaseException:
            connection.writer.close()
            raise
        connection.since = asyncio.get_running_loop().time()
        self._kept.append(connection)
        return answer

    def _take(self) -> _Kept | None:
        now = asyncio.get_running_loop().time()
        while self._kept:
            connection = self._kept.pop()
            if len(self._kept) < _KEEP and connection.is_usable(now):
                return connection
            connection.writer.close()
        return None


class KeyClient:
    """The same for a program that waits: modules and `attested status`."""

    def __init__(self, path: str | Path = SOCKET, *, timeout_seconds: float = CALL_SECONDS) -> None:
        """Call at ``path``."""
        self._path = str(path)
        self._timeout_seconds = timeout_seconds

    def health(self) -> HealthAnswer:
        """Return the state of the key service."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._timeout_seconds)
                connection.connect(self._path)
                connection.sendall(frame(_health_request().SerializeToString()))
                answer: Any = answer_of(_receive(connection))
        except OSError as error:
            raise _unreachable(self._path, error) from error
        return _health(answer.health)


def _receive(connection: socket.socket) -> bytes:
    return _exactly(connection, frame_length(_exactly(connection, 4)))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the connection was closed")
        data += piece
    return data


def _request(correlation_id: str) -> Any:
    return message_class(REQUEST)(correlation_id=correlation_id)


def _health_request() -> Any:
    message = _request("")
    message.health.SetInParent()
    return message


def _health(message: Any) -> HealthAnswer:
    return HealthAnswer(
        ready=message.ready, state=message.state, cluster_id=message.cluster_id, metrics=message.metrics
    )


def _unreachable(path: str, error: Exception) -> KeyServiceError:
    return KeyServiceError(
        f"expected the key service at {path}, got {type(error).__name__}: {error}",
        reason=Reason.KEY_SERVICE_UNREACHABLE,
    )
