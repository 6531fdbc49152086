# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls between two processes of one machine over a unix socket: the frames, the refusals, the client.

A frame is 4 bytes of length (big-endian), then one message, at most 1 MiB.
"""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import AttestedError, Refusal, SystemFault
from ..proto.messages import message_class, parse
from ..reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path


MAX_FRAME_BYTES = 1 << 20
RESPONSE = "attested.v1.KeyServiceResponse"
"""A refusal has the same field number in the responses of all sockets, so this message can carry each of them."""

_KEEP_SECONDS = 5.0
"""The server closes a connection without requests after 10 s."""

_LENGTH_BYTES = 4


def frame(message: bytes) -> bytes:
    """Return ``message`` after its length; raises MESSAGE_TOO_LARGE."""
    return _bounded(len(message)).to_bytes(_LENGTH_BYTES, "big") + message


def frame_length(head: bytes) -> int:
    """Return the length in the first four bytes of a frame; raises MESSAGE_TOO_LARGE before the message is read."""
    return _bounded(int.from_bytes(head, "big"))


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next message; raises MESSAGE_TOO_LARGE, and IncompleteReadError at the end of the stream."""
    return await reader.readexactly(frame_length(await reader.readexactly(_LENGTH_BYTES)))


def refusal_answer(error: AttestedError) -> bytes:
    """Return the response that carries an error: code and message for the log, coarse text for the peer."""
    response = message_class(RESPONSE)()
    response.refusal.code = error.code
    response.refusal.message = error.message
    response.refusal.coarse = error.reason.value.coarse.value
    response.refusal.retry_after_milliseconds = math.ceil(error.retry_after_seconds * 1000)
    return bytes(response.SerializeToString())


def answer_of(data: bytes, response_name: str = RESPONSE) -> Any:
    """Return the parsed response; raises the `Refusal` in it, with the same reason, or MESSAGE_MALFORMED."""
    response = parse(response_name, data)
    kind = response.WhichOneof("answer")
    if kind is None:
        raise Refusal(f"expected an answer in {response_name}, got none", reason=Reason.MESSAGE_MALFORMED)
    if kind == "refusal":
        raise Refusal(
            response.refusal.message,
            reason=_reason(response.refusal.code),
            retry_after_seconds=response.refusal.retry_after_milliseconds / 1000,
        )
    return response


def _bounded(length: int) -> int:
    if length > MAX_FRAME_BYTES:
        raise Refusal(
            f"expected a frame of at most {MAX_FRAME_BYTES} bytes, got {length}", reason=Reason.MESSAGE_TOO_LARGE
        )
    return length


def _reason(code: str) -> Reason:
    return Reason.__members__.get(code, Reason.INTERNAL)


# The client.


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service to call: the ``path`` of its socket, its ``name`` for messages, the reason if it is ``absent``.

    ``timeout_seconds`` is the time for one call, from the connection to the response.
    """

    path: str | Path
    name: str
    absent: Reason
    timeout_seconds: float

    def unreachable(self, error: Exception) -> SystemFault:
        """Return the error with the reason ``absent``."""
        return SystemFault(
            f"expected {self.name} at {self.path}, got {type(error).__name__}: {error}", reason=self.absent
        )


@dataclass(slots=True)
class _Kept:
    """An open connection and the time of its last response."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    since: float = 0.0

    def is_usable(self, now: float) -> bool:
        """Return whether the server probably still has the connection open."""
        return not self.reader.at_eof() and not self.writer.is_closing() and now - self.since < _KEEP_SECONDS


class Caller:
    """Calls a service whose responses have one message type; keeps at most ``keep`` connections open for later calls.

    A kept connection that the server has closed meanwhile is replaced, and the call is sent again.
    """

    def __init__(self, service: Service, *, response_name: str, keep: int = 0) -> None:
        """Call ``service``."""
        self._service = service
        self._response_name = response_name
        self._keep = keep
        self._kept: list[_Kept] = []

    async def call(self, message: Any) -> Any:
        """Return the response to ``message``; raises its `Refusal`, or `SystemFault` if the service is absent."""
        try:
            async with asyncio.timeout(self._service.timeout_seconds):
                return answer_of(await self._exchange(frame(message.SerializeToString())), self._response_name)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            raise self._service.unreachable(error) from error

    async def _exchange(self, sent: bytes) -> bytes:
        kept = self._take()
        if kept is not None:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                return await self._converse(kept, sent)
        return await self._converse(_Kept(*await asyncio.open_unix_connection(str(self._service.path))), sent)

    async def _converse(self, connection: _Kept, sent: bytes) -> bytes:
        """Send one message and receive the response; on any error close the connection, so that the server notices."""
        try:
            connection.writer.write(sent)
            await connection.writer.drain()
            answer = await read_frame(connection.reader)
        except BaseException:
            connection.writer.close()
            raise
        if len(self._kept) < self._keep:
            connection.since = asyncio.get_running_loop().time()
            self._kept.append(connection)
        else:
            connection.writer.close()
        return answer

    def _take(self) -> _Kept | None:
        now = asyncio.get_running_loop().time()
        while self._kept:
            connection = self._kept.pop()
            if connection.is_usable(now):
                return connection
            connection.writer.close()
        return None


def call_and_wait(service: Service, message: Any) -> bytes:
    """Return the response to ``message`` as bytes, blocking; raises `SystemFault` if the service is absent."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(service.timeout_seconds)
            connection.connect(str(service.path))
            connection.sendall(frame(message.SerializeToString()))
            return _exactly(connection, frame_length(_exactly(connection, _LENGTH_BYTES)))
    except OSError as error:
        raise service.unreachable(error) from error


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the connection was closed")
        data += piece
    return data
