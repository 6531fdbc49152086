# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Speaking to the key service over its unix socket: one connection a call, so a killed service leaves nothing stale."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import KeyServiceError
from ..proto import message_class
from ..reasons import Reason
from .framing import REQUEST, SOCKET, answer_of, frame, frame_length, read_frame

if TYPE_CHECKING:
    from pathlib import Path

CALL_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """What the relay knows of the attested connection behind a call (see `atls.claims.Claims`)."""

    exporter: bytes
    spki_sha256: bytes
    peer_nonce: bytes
    evidence: bytes

    def to_message(self) -> Any:
        """Return the message of the wire."""
        return message_class("attested.v1.Channel")(
            exporter=self.exporter,
            spki_sha256=self.spki_sha256,
            peer_nonce=self.peer_nonce,
            evidence=self.evidence,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketAnswer:
    """A ticket with its signature, and the node's name for the log."""

    ticket: bytes
    signature: bytes
    node_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthAnswer:
    """Whether the key service can release, in which state it is, and for which cluster (empty while closed)."""

    ready: bool
    state: str
    cluster_id: bytes


class AsyncKeyClient:
    """The join service's side; every call raises what the key service refused with, or KEY_SERVICE_UNREACHABLE."""

    def __init__(self, path: str | Path = SOCKET, *, timeout_seconds: float = CALL_SECONDS) -> None:
        """Call at ``path``."""
        self._path = str(path)
        self._timeout_seconds = timeout_seconds

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
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            writer.write(sent)
            await writer.drain()
            return await read_frame(reader)
        finally:
            writer.close()


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
    return HealthAnswer(ready=message.ready, state=message.state, cluster_id=message.cluster_id)


def _unreachable(path: str, error: Exception) -> KeyServiceError:
    return KeyServiceError(
        f"expected the key service at {path}, got {type(error).__name__}: {error}",
        reason=Reason.KEY_SERVICE_UNREACHABLE,
    )
