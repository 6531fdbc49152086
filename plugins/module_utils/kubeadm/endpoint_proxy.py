# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proxy of the endpoint: listens on loopback, dials control planes, and splices connections."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..errors import TransportError
from ..reasons import Reason
from .endpoint_addresses import joined, literal, parse_address
from .endpoint_splice import LINGER_SECONDS, Splice, abort

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .endpoint_addresses import Choice

HOST = "127.0.0.1"
"""A constant, so that no configuration can open the proxy to the network."""

_BACKLOG = 128
_FULL_PAUSE_SECONDS = 0.1
_HELLO_BYTES = 1 << 14
_NAME_ADDRESSES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the proxy. Its clients are the kubelet and other programs of this machine.

    ``streams``: streams at the same time; further clients wait in the kernel's queue.
    ``connect_seconds``: time for a control plane to accept a connection.
    ``hello_seconds``: time for a client to send its first bytes; no control plane is dialled before.
    ``answer_seconds``: a stream that ends after this time without data from the control plane counts as a failure.
    ``linger_seconds``: time without data after which a stream with one closed direction is ended.
    ``dead_seconds``: time without acknowledgement (also of keep-alives) after which a connection counts as broken.
    """

    streams: int = 1024
    connect_seconds: float = 2.0
    hello_seconds: float = 10.0
    answer_seconds: float = 3.0
    linger_seconds: float = LINGER_SECONDS
    dead_seconds: int = 10


class EventLog(Protocol):
    """The log of the proxy (`core.logs.Log`)."""

    def event(self, name: str, /, **fields: str | float | bool | None) -> None:
        """Log one event."""


class Dialler:
    """Connects to the first control plane that accepts, and reports the failures to ``choice``."""

    def __init__(self, choice: Choice, *, log: EventLog, limits: Limits, own_port: int = 0) -> None:
        """Store the choice of addresses; ``own_port`` on loopback is the proxy itself and is never dialled."""
        self.names: tuple[str, ...] = ()
        self.own_port = own_port
        self._choice = choice
        self._log = log
        self._limits = limits

    async def connect(self) -> tuple[socket.socket, str]:
        """Return a connected socket and the address of its control plane (host:port).

        Raises PEER_UNREACHABLE.
        """
        tried = 0
        async for address in self._candidates():
            tried += 1
            try:
                return await self._dial(address), address
            except (OSError, TimeoutError) as error:
                self.failed(address, str(error) or f"no connection within {self._limits.connect_seconds:g} s")
        raise TransportError(
            f"expected one of {tried} control planes to accept a connection, none did", reason=Reason.PEER_UNREACHABLE
        )

    def failed(self, address: str, why: str) -> None:
        """Record a failure of ``address``, and log the first failure in a row."""
        if self._choice.failed(address, asyncio.get_running_loop().time()):
            self._log.event("control_plane_failed", control_plane=address, detail=why)

    async def _candidates(self) -> AsyncIterator[str]:
        seen = set()
        for address in self._choice.order(asyncio.get_running_loop().time()):
            if not self._is_own(address):
                seen.add(address)
                yield address
        for name in self.names:
            for address in await self._resolve(name):
                if address not in seen and not self._is_own(address):
                    seen.add(address)
                    yield address

    async def _resolve(self, name: str) -> list[str]:
        host, port = parse_address(name)
        try:
            async with asyncio.timeout(self._limits.connect_seconds):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError, UnicodeError) as error:
            self._log.event("name_unresolved", name=name, detail=str(error))
            return []
        hosts = dict.fromkeys(str(one[4][0]) for one in found)
        return [joined(host, port) for host in hosts if "%" not in host][:_NAME_ADDRESSES]

    async def _dial(self, address: str) -> socket.socket:
        host, port = parse_address(address)
        made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.settimeout(0)
            _detect_dead_peer(made, self._limits.dead_seconds)
            async with asyncio.timeout(self._limits.connect_seconds):
                await asyncio.get_running_loop().sock_connect(made, (host, port))
        except BaseException:
            made.close()
            raise
        return made

    def _is_own(self, address: str) -> bool:
        host, port = parse_address(address)
        found = literal(host)
        return port == self.own_port and found is not None and found.is_loopback


class Proxy:
    """Listens on loopback and splices each client with a control plane."""

    def __init__(
        self,
        choice: Choice,
        dialler: Dialler,
        *,
        log: EventLog,
        limits: Limits,
        look: Callable[[], None] = lambda: None,
        chosen: Callable[[str], None] = lambda _address: None,
    ) -> None:
        """Store the collaborators.

        ``look`` is called before each dial, because the list may have changed. ``chosen`` is called with an address
        that becomes the first choice.
        """
        self._choice = choice
        self._dialler = dialler
        self._log = log
        self._limits = limits
        self._look = look
        self._chosen = chosen
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._free = asyncio.Semaphore(limits.streams)
        self._streams: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    @property
    def streams(self) -> int:
        """The number of current streams."""
        return len(self._streams)

    def start(self, port: int) -> int:
        """Listen on ``port`` (0: a free port) and return the port; raises PORT_UNAVAILABLE."""
        self._listener.settimeout(0)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((HOST, port))
            self._listener.listen(_BACKLOG)
        except OSError as error:
            raise TransportError(
                f"cannot listen at {HOST}:{port}: {error.strerror}", reason=Reason.PORT_UNAVAILABLE
            ) from error
        bound = int(self._listener.getsockname()[1])
        self._dialler.own_port = bound
        self._accepting = asyncio.create_task(self._accept())
        return bound

    async def stop(self) -> None:
        """Stop accepting clients and end every stream."""
        running = {*self._streams, *({self._accepting} if self._accepting else ())}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._free.acquire()
            try:
                client, _peer = await loop.sock_accept(self._listener)
            except OSError as error:  # No descriptor is left, or the client has disconnected.
                self._free.release()
                self._log.event("accept_failed", detail=str(error))
                await asyncio.sleep(_FULL_PAUSE_SECONDS)
                continue
            task = loop.create_task(self._serve(client))
            self._streams.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._streams.discard(task)
        self._free.release()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.event("stream_failed", reason=Reason.INTERNAL.name, detail=f"{type(error).__name__}: {error}")

    async def _serve(self, client: socket.socket) -> None:
        with client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = await self._hello(client)
            if not hello:
                return
            self._look()
            try:
                server, address = await self._dialler.connect()
            except TransportError as error:
                self._log.event("no_control_plane", reason=error.code, detail=error.message)
                abort(client)
                return
            with server:
                await self._splice(client, server, address, hello)

    async def _hello(self, client: socket.socket) -> bytes:
        """Return the client's first bytes, empty if there are none in time. A TLS client sends before the server."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._limits.hello_seconds):
                return await asyncio.get_running_loop().sock_recv(client, _HELLO_BYTES)
        return b""

    async def _splice(self, client: socket.socket, server: socket.socket, address: str, hello: bytes) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        splice = Splice(
            client, server, answered=lambda: self._answered(address), linger_seconds=self._limits.linger_seconds
        )
        await splice.run(hello)
        waited = loop.time() - begun >= self._limits.answer_seconds
        if splice.server_broke:
            self._dialler.failed(address, "its connection broke")
        elif not splice.has_answered and (splice.server_ended or waited):
            self._dialler.failed(address, "it accepted the connection and sent nothing")

    def _answered(self, address: str) -> None:
        before = self._choice.latest
        self._choice.answered(address)
        if before != address:
            self._log.event("control_plane_chosen", control_plane=address, before=before)
            self._chosen(address)


def _detect_dead_peer(connection: socket.socket, dead_seconds: int) -> None:
    """Make the kernel detect a dead peer: by keep-alive probes if idle, else by a timeout for unacknowledged data."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, max(1, dead_seconds // 2)),
        (socket.TCP_KEEPINTVL, max(1, dead_seconds // 5)),
        (socket.TCP_KEEPCNT, 3),
        (socket.TCP_USER_TIMEOUT, dead_seconds * 1000),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
