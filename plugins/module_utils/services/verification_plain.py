# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Relay connections in plain text to a gRPC service on a unix socket, within limits.

Only Constellation's program uses them, which speaks no TLS here. Of the peer only the address is known, and the peer
cannot authenticate this service.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.rate import source_of
from ..errors import SystemFault, TransportError
from ..reasons import Reason
from ..transport.claims import Claims
from ..transport.limits import Served

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ..core.host import Clock, Random
    from ..transport.claims import Registry
    from ..transport.limits import Limits, Seat
    from ..transport.seams import Observer

_BUFFER_BYTES = 1 << 14
_NAME_BYTES = 16


class PlainRelay:
    """Relays at most ``limits.served`` connections, each for ``limits.served_seconds``; claims hold only the address.

    Runs on the event loop that calls `start`.
    """

    def __init__(
        self,
        *,
        backend_socket: Path,
        registry: Registry,
        limits: Limits,
        observer: Observer,
        runtime_directory: Path,
        clock: Clock,
        random: Random,
    ) -> None:
        """Store the collaborators; nothing listens yet."""
        self._backend = backend_socket
        self._registry = registry
        self._limits = limits
        self._observer = observer
        self._parent = runtime_directory
        self._clock = clock
        self._random = random
        self._served = Served(limits)
        self._tasks: set[asyncio.Task[None]] = set()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port (for port 0 the kernel chooses one); raises PORT_UNAVAILABLE, FILE_UNUSABLE."""
        try:
            self._directory = tempfile.TemporaryDirectory(prefix="plain-", dir=self._parent)
        except OSError as error:
            raise SystemFault(
                f"cannot make a directory in {self._parent}: {error.strerror}", reason=Reason.FILE_UNUSABLE
            ) from error
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=_BUFFER_BYTES)
        except OSError as error:
            raise TransportError(
                f"cannot listen at {host}:{port}: {error.strerror or error}", reason=Reason.PORT_UNAVAILABLE
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self, *, grace_seconds: float = 0.0) -> None:
        """Accept no more, give open connections ``grace_seconds``, close them and leave no file behind."""
        if self._server is not None:
            self._server.close()
        if self._tasks and grace_seconds:
            await asyncio.wait(self._tasks, timeout=grace_seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._directory is not None:
            self._directory.cleanup()
        self._server = self._directory = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")[:2]
        remote = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            seat = self._served.enter(source_of(host), writer.transport.abort, now=self._clock.monotonic())
            seat.shut = lambda: self._shut(writer)
            try:
                async with asyncio.timeout(self._limits.served_seconds):
                    await self._carry(reader, writer, _claims(remote, self._clock.monotonic(), seat))
            finally:
                self._served.leave(seat)
        except (TransportError, OSError, TimeoutError) as error:
            reason = error.code if isinstance(error, TransportError) else Reason.CONNECTION_CLOSED.name
            self._observer.event("connection_failed", remote=remote, reason=reason, detail=str(error))
        finally:
            writer.close()

    def _shut(self, writer: asyncio.StreamWriter) -> None:
        """Read no more, and close after the time for the answer."""
        if isinstance(writer.transport, asyncio.ReadTransport) and writer.transport.is_reading():
            writer.transport.pause_reading()
        asyncio.get_running_loop().call_later(self._limits.refused_seconds, writer.close)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, known: Claims) -> None:
        if self._directory is None:
            raise TransportError("expected a started relay, it is stopped", reason=Reason.CONNECTION_CLOSED)
        path = Path(self._directory.name) / self._random.token(_NAME_BYTES).hex()
        self._registry.add(str(path), known)
        try:
            there_reader, there_writer = await self._connect(path)
            try:
                await _joined(_pump(reader, there_writer), _pump(there_reader, writer))
            finally:
                there_writer.close()
        finally:
            self._registry.remove(str(path))

    async def _connect(self, path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.bind(str(path))
            await asyncio.get_running_loop().sock_connect(connection, str(self._backend))
            return await asyncio.open_unix_connection(sock=connection, limit=_BUFFER_BYTES)
        except OSError as error:
            connection.close()
            raise TransportError(
                f"expected the service at {self._backend}, got: {error.strerror or error}",
                reason=Reason.BACKEND_UNREACHABLE,
            ) from error
        finally:
            _unlink(path)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def _claims(remote: str, now: float, seat: Seat) -> Claims:
    return Claims(
        evidence=b"", peer_nonce=b"", spki_sha256=b"", exporter=b"", remote=remote, accepted_at=now, seat=seat
    )


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_BUFFER_BYTES):
        writer.write(data)
        await writer.drain()


async def _joined(*directions: Coroutine[Any, Any, None]) -> None:
    """Relay both directions until one ends, then stop the other."""
    tasks = [asyncio.ensure_future(one) for one in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
