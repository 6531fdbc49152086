# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The socket of the key service: who may call, how much, and one task a connection.

grpcio cannot check SO_PEERCRED, so this is a plain asyncio server. A caller is known by its user id, which the kernel
tells; the file's mode is only a second fence.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import AttestedError, KeyServiceError, SystemFault
from ..reasons import Reason
from .framing import frame, read_frame, refusal_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Handler = Callable[[bytes], Awaitable[bytes]]

_CREDENTIALS = struct.Struct("3i")
_MAX_CONNECTIONS = 128
_READ_SECONDS = 10.0
_STRANGER_SECONDS = 1.0

_gone: contextvars.ContextVar[Callable[[], bool]] = contextvars.ContextVar("caller_gone")


class SocketServer:
    """Serves framed messages at ``path`` to the users in ``allowed``."""

    def __init__(
        self,
        path: Path,
        *,
        handler: Handler,
        allowed: frozenset[int],
        group: int = 0,
        refused: Callable[[int], None],
        stranger: Reason = Reason.KEY_SERVICE_CALLER_UNKNOWN,
    ) -> None:
        """Answer each message by ``handler``.

        ``refused`` hears the user id of a caller that was sent away, which is told ``stranger``.
        """
        self._path = path
        self._handler = handler
        self._allowed = allowed
        self._group = group
        self._refused = refused
        self._stranger = stranger
        self._places = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._idle: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; a socket that a killed service left is replaced. Raises FILE_UNUSABLE."""
        try:
            self._path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(self._path))
            self._path.chmod(0o660)
            os.chown(self._path, -1, self._group)
        except OSError as error:
            raise SystemFault(
                f"cannot listen at {self._path}: {error.strerror}", reason=Reason.FILE_UNUSABLE
            ) from error
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    async def stop(self) -> None:
        """Take no more calls and remove the socket."""
        if self._server is not None:
            self._server.close()
            for writer in self._idle:
                writer.close()
            await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._places:
                await self._converse(reader, writer)
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        user = peer_user(writer.get_extra_info("socket"))
        if user not in self._allowed:
            self._refused(user)
            await _send(writer, refusal_answer(_unknown_caller(user, self._stranger)))
            with suppress(TimeoutError, ConnectionError):  # who is still writing when we close would not hear it
                async with asyncio.timeout(_STRANGER_SECONDS):
                    await reader.read(1)
            return
        _gone.set(reader.at_eof)
        with suppress(asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            while True:
                try:
                    message = await self._next(reader, writer)
                except AttestedError as error:
                    await _send(writer, refusal_answer(error))
                    return  # the stream is of no use after a frame that was not read
                await _send(writer, await self._handler(message))

    async def _next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        self._idle.add(writer)
        try:
            async with asyncio.timeout(_READ_SECONDS):
                return await read_frame(reader)
        finally:
            self._idle.discard(writer)


def stays() -> bool:
    """Say that the caller still waits: for calls that came over no connection."""
    return False


def caller_gone() -> Callable[[], bool]:
    """Return what says, from any thread, whether the caller of the call being handled has hung up."""
    return _gone.get()


def peer_user(connection: socket.socket) -> int:
    """Return the user id of the process at the other end (unix(7), SO_PEERCRED)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


async def _send(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(frame(message))
    await writer.drain()


def _unknown_caller(user: int, reason: Reason) -> KeyServiceError:
    return KeyServiceError(f"expected root or the user of the service beside this one, got user {user}", reason=reason)
