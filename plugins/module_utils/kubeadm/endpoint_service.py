# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-api-endpoint`: forwards a loopback port of a worker to a control plane (ADR 0034).

It runs as a dynamic user without capabilities and secrets: it forwards TLS connections without decrypting them.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.files import read_bytes
from ..core.host import Random, SystemRandom, release, shuffled
from ..core.logs import open_log
from ..core.runtime import Notifier, Reloader, load_config, wait_for_stop
from ..errors import AttestedError, SiteError, TransportError
from ..reasons import Reason
from .endpoint_addresses import LIST, MAX_ADDRESSES, MAX_LIST_BYTES, Choice, joined, literal, parse_address, parse_list
from .endpoint_splice import LINGER_SECONDS, Splice, abort

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from ..core.logs import Log


# The proxy of the endpoint: listens on loopback, dials control planes, and splices connections.

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


CONFIG = "/etc/attested/api-endpoint.yml"
DEFAULT_PORT = 6444


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEndpointConfig:
    """The configuration file, written by the role `api_endpoint`.

    ``control_planes``: host:port of the control planes that the site configures.
    ``endpoint``: host:port of a load balancer or name for control planes, used after all others; empty for none.
    ``list_file``: the control planes that the cluster named last.
    """

    control_planes: tuple[str, ...] = ()
    endpoint: str = ""
    listen_port: int = DEFAULT_PORT
    list_file: Path = Path(LIST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The control planes to dial: addresses in order, and names that resolve to further addresses."""

    addresses: tuple[str, ...]
    names: tuple[str, ...]


def load_known(config: ApiEndpointConfig, learned: Sequence[str], *, random: Random) -> Known:
    """Return the control planes to dial.

    The addresses of the cluster come first, then those of the site, both shuffled. Names come last. Raises
    ENDPOINT_INVALID, and CONFIG_INVALID if the site configures no control plane or too many.
    """
    entries = [*config.control_planes, *([config.endpoint] if config.endpoint else [])]
    hosts = {entry: parse_address(entry)[0] for entry in entries}
    if not 1 <= len(entries) <= MAX_ADDRESSES:
        raise SiteError(
            f"expected 1 to {MAX_ADDRESSES} control planes, got {len(entries)}", reason=Reason.CONFIG_INVALID
        )
    addresses = [entry for entry in entries if literal(hosts[entry]) is not None]
    return Known(
        addresses=tuple(dict.fromkeys((*shuffled(random, learned), *shuffled(random, addresses)))),
        names=tuple(dict.fromkeys(entry for entry in entries if literal(hosts[entry]) is None)),
    )


class Lists:
    """Reads the configuration and the list of control planes, and detects changes of the list."""

    def __init__(self, path: str | Path, *, log: Log, random: Random) -> None:
        """Read the configuration at ``path``; `load` reads the list that it names."""
        self._path = path
        self._log = log
        self._random = random
        self._seen: tuple[int, int] | None = None
        self.config = load_config(ApiEndpointConfig, path)
        self._learned: tuple[str, ...] = ()

    def load(self) -> Known:
        """Read both files again; a malformed list is logged and the last good list stays.

        Raises as `load_known`.
        """
        config = load_config(ApiEndpointConfig, self._path)
        self._seen = _stamp(config.list_file)
        if self._seen is not None:
            try:
                self._learned = parse_list(read_bytes(config.list_file, limit=MAX_LIST_BYTES))
            except AttestedError as error:
                self._log.event("list_refused", reason=error.code, detail=error.message)
        known = load_known(config, self._learned, random=self._random)
        self.config = config
        return known

    def has_changed(self) -> bool:
        """Return whether the list has changed since it was read."""
        return _stamp(self.config.list_file) != self._seen


class Service:
    """One run of the program: choice, dialler, proxy, and the status for systemd."""

    def __init__(self, lists: Lists, *, log: Log, limits: Limits, notifier: Notifier) -> None:
        """Wire the collaborators; nothing listens yet. Raises ENDPOINT_INVALID, CONFIG_INVALID."""
        self._lists = lists
        self._notifier = notifier
        self._choice = Choice()
        self._dialler = Dialler(self._choice, log=log, limits=limits)
        self._reloader = Reloader(lists.load, self._use, log=log)
        self.proxy = Proxy(
            self._choice, self._dialler, log=log, limits=limits, look=self._look, chosen=lambda _one: self._notify()
        )
        self._use(lists.load())

    def start(self) -> int:
        """Listen, handle SIGHUP as reload, and return the port; raises PORT_UNAVAILABLE."""
        port = self.proxy.start(self._lists.config.listen_port)
        self._reloader.listen()
        self._notifier.ready(self.sentence())
        return port

    def sentence(self) -> str:
        """Return the status text that `attested status` shows."""
        latest = self._choice.latest
        known = ", ".join([*sorted(self._choice.addresses), *self._dialler.names])
        return f"{f'{latest} answered last' if latest else 'none has answered yet'}; known: {known}"

    def reload(self) -> None:
        """Read the configuration and the list again; open streams stay."""
        self._reloader.reload()

    def _use(self, known: Known) -> None:
        self._choice.replace(known.addresses)
        self._dialler.names = known.names
        self._notify()

    def _look(self) -> None:
        if self._lists.has_changed():
            self.reload()

    def _notify(self) -> None:
        self._notifier.status(self.sentence())


async def serve(path: str | Path, *, log: Log, limits: Limits | None = None, listening: Callable[[int], None]) -> None:
    """Serve until SIGTERM; calls ``listening`` with the port.

    Raises an `AttestedError` if it cannot serve.
    """
    service = Service(
        Lists(path, log=log, random=SystemRandom()), log=log, limits=limits or Limits(), notifier=Notifier()
    )
    try:
        listening(service.start())
        log.event("stopping", signal=await wait_for_stop())
    finally:
        await service.proxy.stop()


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, or 1 with the error on standard error if it cannot serve."""
    parser = argparse.ArgumentParser(
        prog="attested-api-endpoint", description="Forward a loopback port to a control plane that answers."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {release()}")
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help="the configuration (default: %(default)s)")
    options = parser.parse_args(argv)
    log = open_log()
    try:
        asyncio.run(serve(options.config, log=log, listening=lambda port: log.event("listening", port=port)))
    except AttestedError as error:
        sys.stderr.write(f"attested-api-endpoint: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
