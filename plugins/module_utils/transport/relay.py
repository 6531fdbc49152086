# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server side of attested TLS: accept, peek, handshake, verify, and only then connect to the service.

    TCP → peek at the ClientHello → (evidence over its nonce) → TLS 1.3 → verify the peer's evidence
        → accepted: unix socket of the real service, claims registered under the path of our own socket
        → refused:  unix socket of the rejector, one text for all causes, not before a fixed time

No byte of a peer is forwarded before its evidence was verified. Design: docs/protocol/transport.md.
"""

from __future__ import annotations

import asyncio
import re
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.host import Clock, Random, SystemClock, SystemRandom
from ..core.rate import TokenBuckets, source_of
from ..errors import AttestedError, Refusal, SystemFault, TransportError
from ..reasons import Reason
from .certificate import (
    NONCE_BYTES,
    Issuer,
    NoObserver,
    Observer,
    Validator,
    decode_nonce,
    make_certificate,
    new_key,
    nonce_authority,
    open_certificate,
    spki_sha256,
)
from .claims import Claims, Registry, start_rejector
from .limits import Limits, Pace, Served, Unverified
from .session import ClientHello, ServerCredentials, Splice, TlsSession, Wire, peek, server_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from .limits import Seat

_PATH_BYTES = 107
"""The kernel's sun_path has 108 bytes including the final zero (unix(7))."""
_NAME_BYTES = 16
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")
_BACKLOG = 512
_LOOK_AGAIN_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class _Peer:
    """One connection that is not attested yet."""

    wire: Wire
    source: str
    remote: str
    accepted_at: float
    nonce: bytes
    received: int = 0
    given_up: TransportError | None = None
    timer: asyncio.TimerHandle | None = None

    def give_up(self) -> None:
        """Close at once, since another connection needs the place."""
        self.give_up_for(TransportError("expected a free place, all were taken", reason=Reason.CONNECTION_LIMIT))

    def give_up_for(self, error: TransportError) -> None:
        """Close at once because of ``error``."""
        self.given_up = error
        self.wire.abort()


class Listener:
    """Connects attested peers, and no others, to the gRPC service on ``backend_socket``.

    The server's certificate is either from ``server_credentials`` (called for each connection, so that a renewed
    certificate needs no restart) or, with ``issuer``, has evidence over the nonce in the peer's server name. With
    ``validator`` each peer must show evidence; without it no evidence is requested. Runs on the event loop that calls
    `start`.
    """

    def __init__(
        self,
        *,
        backend_socket: str | Path,
        registry: Registry,
        server_credentials: Callable[[], ServerCredentials] | None = None,
        issuer: Issuer | None = None,
        validator: Validator | None = None,
        limits: Limits | None = None,
        observer: Observer | None = None,
        runtime_directory: str | Path | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Store the collaborators; `runtime_directory` has the private directory of sockets (None: the system's)."""
        if (server_credentials is None) == (issuer is None):
            raise ValueError("expected either server_credentials or an issuer")
        self._backend = Path(backend_socket)
        self._registry = registry
        self._server_credentials = server_credentials
        self._issuer = issuer
        self._validator = validator
        self._limits = limits or Limits()
        self._observer = observer or NoObserver()
        self._parent = runtime_directory
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._unverified = Unverified(self._limits)
        self._arrivals = TokenBuckets(
            rate=self._limits.arrivals_per_second,
            burst=self._limits.arrival_burst,
            clock=self._clock,
            reason=Reason.CONNECTION_LIMIT,
            what="connections a second from one address",
        )
        self._pace = Pace(self._limits, left=self._arrivals.left, clock=self._clock)
        self._served = Served(self._limits, proven=self._pace.proven)
        self.turned_away = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._workers: ThreadPoolExecutor | None = None
        self._server: asyncio.Server | None = None
        self._rejector: Any = None

    # ---- life

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port (chosen by the kernel for port 0); raises PORT_UNAVAILABLE, FILE_UNUSABLE."""
        loop = asyncio.get_running_loop()
        try:
            await self._prepare()
            self._server = await loop.create_server(lambda: Wire(self._accept), host, port, backlog=_BACKLOG)
        except SystemFault:
            await self.stop()
            raise
        except OSError as error:
            await self.stop()
            raise TransportError(
                f"cannot listen at {host}:{port}: {error.strerror or error}", reason=Reason.PORT_UNAVAILABLE
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        self._observer.event("listening", host=host, port=bound)
        return bound

    async def stop(self, *, grace_seconds: float = 0.0) -> None:
        """Accept no more connections, close open ones after ``grace_seconds``, and remove all files."""
        if self._server is not None:
            self._server.close()
        if self._tasks and grace_seconds:
            await asyncio.wait(self._tasks, timeout=grace_seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._rejector is not None:
            await self._rejector.stop(0)
        if self._workers is not None:
            self._workers.shutdown(wait=False, cancel_futures=True)
        if self._directory is not None:
            self._directory.cleanup()
        self._server = self._rejector = self._workers = self._directory = None

    @property
    def unverified(self) -> int:
        """The number of connections without evidence yet."""
        return len(self._unverified)

    @property
    def served(self) -> int:
        """The number of open attested connections."""
        return len(self._served)

    @property
    def unproven(self) -> int:
        """The number of attested connections without a granted call or a proven key."""
        return self._served.unproven

    @property
    def waiting(self) -> int:
        """The number of newcomers that wait for their handshake."""
        return len(self._pace)

    async def _prepare(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="atls-", dir=self._parent)
        _check_paths(Path(self._directory.name) / ("0" * 2 * _NAME_BYTES), self._backend)
        self._workers = ThreadPoolExecutor(self._limits.judging_workers, thread_name_prefix="judge")
        self._rejector = await start_rejector(self._rejector_path)

    @property
    def _private(self) -> Path:
        if self._directory is None:
            raise TransportError("expected a started listener, it is stopped", reason=Reason.CONNECTION_CLOSED)
        return Path(self._directory.name)

    @property
    def _rejector_path(self) -> Path:
        return self._private / "rejector"

    # ---- one connection

    def _accept(self, wire: Wire) -> None:
        try:
            self._arrivals.take(source_of(wire.remote[0]))
        except Refusal:  # a flood: even a log line for each connection would cost too much
            self.turned_away += 1
            wire.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(wire))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, wire: Wire) -> None:
        host, port = wire.remote
        peer = _Peer(
            wire=wire,
            source=source_of(host),
            remote=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            accepted_at=self._clock.monotonic(),
            nonce=self._random.token(NONCE_BYTES),
        )
        slot = self._unverified.enter(peer.source, peer.give_up)
        try:
            session = await self._establish(peer)
            claims = await self._judge(peer, session)
            if claims is None:
                await self._reject(peer, session)
                return
            seat = self._served.enter(peer.source, peer.give_up, now=self._clock.monotonic(), key=claims.key)
            self._unverified.leave(slot)
            try:
                await self._pass_on(peer, session, replace(claims, seat=seat))
            finally:
                self._served.leave(seat)
                seat.release()
        except Exception as error:  # noqa: BLE001 - any error ends this peer's connection and no other
            self._note("connection_failed", peer, _cause(peer, error))
        finally:
            self._unverified.leave(slot)
            wire.close(linger_seconds=self._limits.linger_seconds)

    async def _establish(self, peer: _Peer) -> TlsSession:
        try:
            async with asyncio.timeout(self._limits.handshake_seconds):
                return await self._shake_hands(peer)
        except TimeoutError as error:
            raise TransportError(
                f"expected a handshake within {self._limits.handshake_seconds:g} s", reason=Reason.CONNECTION_TIMEOUT
            ) from error

    async def _shake_hands(self, peer: _Peer) -> TlsSession:
        first, hello = await self._read_hello(peer)
        if not self._served.knows(peer.source):
            await self._pace.turn(peer.source, peer.wire.closed)
        credentials = await self._credentials(hello)
        authority = nonce_authority(peer.nonce, now=self._clock.now()) if self._validator else None
        session = TlsSession(server_context(credentials, client_authority=authority), is_server=True)
        session.feed(first)
        while not self._step(peer, session):
            session.feed(await self._read(peer))
        if session.server_name() != hello.server_name:
            raise TransportError(
                "expected one server name in the ClientHello, OpenSSL read another one",
                reason=Reason.CLIENT_HELLO_MALFORMED,
            )
        return session

    def _step(self, peer: _Peer, session: TlsSession) -> bool:
        try:
            return session.handshake()
        finally:
            peer.wire.write(session.outgoing())

    async def _read_hello(self, peer: _Peer) -> tuple[bytes, ClientHello]:
        data = b""
        while True:
            data += await self._read(peer)
            hello = peek(data)
            if hello is not None:
                return data, hello

    async def _read(self, peer: _Peer) -> bytes:
        data = await peer.wire.read()
        peer.received += len(data)
        if peer.received > self._limits.handshake_bytes:
            raise TransportError(
                f"expected at most {self._limits.handshake_bytes} bytes of handshake, got more",
                reason=Reason.TLS_HANDSHAKE_FAILED,
            )
        return data

    async def _credentials(self, hello: ClientHello) -> ServerCredentials:
        if self._server_credentials is not None:
            return self._server_credentials()
        nonce = decode_nonce(hello.server_name or b"")
        credentials: ServerCredentials = await self._in_worker(lambda: self._issue(nonce))
        return credentials

    def _issue(self, nonce: bytes) -> ServerCredentials:
        if self._issuer is None:
            raise TransportError("expected an issuer, there is none", reason=Reason.INTERNAL)
        key = new_key()
        evidence = self._issuer.issue(user_data=spki_sha256(key.public_key()), nonce=nonce)
        certificate = make_certificate(key, oid=self._issuer.oid, evidence=evidence, now=self._clock.now())
        return ServerCredentials((certificate,), key)

    async def _in_worker(self, work: Callable[[], Any]) -> Any:
        if self._workers is None:
            raise TransportError("expected a started listener, it is stopped", reason=Reason.CONNECTION_CLOSED)
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)

    # ---- judgement

    async def _judge(self, peer: _Peer, session: TlsSession) -> Claims | None:
        """Return the claims of an accepted peer, or None for a refused peer; only our log gets the reason."""
        try:
            async with asyncio.timeout(self._limits.judging_seconds):
                if self._limits.judges_inline:
                    return self._verify(peer, session)
                claims: Claims = await self._in_worker(lambda: self._verify(peer, session))
                return claims
        except TimeoutError as error:
            raise TransportError(
                f"expected a judgement within {self._limits.judging_seconds:g} s", reason=Reason.CONNECTION_TIMEOUT
            ) from error
        except Exception as refusal:  # noqa: BLE001 - any error of the verification is a refusal
            self._note("peer_rejected", peer, _cause(peer, refusal))
            return None

    def _verify(self, peer: _Peer, session: TlsSession) -> Claims:
        evidence = spki = nonce = key = b""
        if self._validator is not None:
            nonce = peer.nonce
            opened = open_certificate(session.peer_chain(), oid=self._validator.oid, now=self._clock.now())
            evidence, spki = opened.evidence, opened.spki_sha256
            key = self._validator.validate(evidence, user_data=spki, nonce=nonce)
        return Claims(
            evidence=evidence,
            peer_nonce=nonce,
            spki_sha256=spki,
            exporter=session.exporter(),
            remote=peer.remote,
            accepted_at=peer.accepted_at,
            key=key,
        )

    # ---- after it

    async def _pass_on(self, peer: _Peer, session: TlsSession, claims: Claims) -> None:
        path = self._private / self._random.token(_NAME_BYTES).hex()
        try:
            self._registry.add(str(path), claims)
            local = await self._connect(self._backend, path)
            local.closed.add_done_callback(lambda _unused: self._registry.remove(str(path)))
            splice = Splice(session, peer.wire, local)
            if claims.seat is not None:
                self._watch(peer, claims.seat, splice)
            await splice.run(seconds=self._limits.served_seconds, linger_seconds=self._limits.linger_seconds)
            error = peer.given_up or splice.error
            if error is not None:
                self._note("connection_broken", peer, error)
        finally:
            self._registry.remove(str(path))
            if peer.timer is not None:
                peer.timer.cancel()  # it would keep the whole session until then

    def _watch(self, peer: _Peer, seat: Seat, splice: Splice) -> None:
        """Close a connection that is not proven in time, or whose call was refused before it was proven."""
        loop = asyncio.get_running_loop()

        def shut() -> None:
            splice.stop_reading()
            loop.call_later(self._limits.refused_seconds, lambda: peer.wire.close(linger_seconds=0))

        seat.shut = shut
        peer.timer = loop.call_later(self._limits.unproven_seconds, self._reclaim, peer, seat)

    def _reclaim(self, peer: _Peer, seat: Seat) -> None:
        if seat.is_known or peer.wire.closed.done():
            return
        if seat.running:
            peer.timer = asyncio.get_running_loop().call_later(_LOOK_AGAIN_SECONDS, self._reclaim, peer, seat)
            return
        peer.give_up_for(
            TransportError(
                f"expected a granted call within {self._limits.unproven_seconds:g} s, there was none",
                reason=Reason.CONNECTION_UNPROVEN,
            )
        )

    async def _reject(self, peer: _Peer, session: TlsSession) -> None:
        wait = peer.accepted_at + self._limits.rejection_floor_seconds - self._clock.monotonic()
        await asyncio.sleep(max(0.0, wait))
        local = await self._connect(self._rejector_path, self._private / self._random.token(_NAME_BYTES).hex())
        splice = Splice(session, peer.wire, local)
        await splice.run(seconds=self._limits.rejected_seconds, linger_seconds=self._limits.linger_seconds)

    async def _connect(self, target: Path, own: Path) -> Wire:
        loop = asyncio.get_running_loop()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.bind(str(own))
            await loop.sock_connect(connection, str(target))
            _unused, wire = await loop.create_unix_connection(Wire, sock=connection)
        except OSError as error:
            connection.close()
            raise TransportError(
                f"expected the service at {target}, got: {error.strerror or error}", reason=Reason.BACKEND_UNREACHABLE
            ) from error
        finally:
            _unlink(own)
        return wire

    def _note(self, event: str, peer: _Peer, error: AttestedError) -> None:
        self._observer.event(
            event,
            remote=peer.remote,
            reason=error.code,
            detail=error.message,
            seconds=round(self._clock.monotonic() - peer.accepted_at, 4),
        )


def _check_paths(own: Path, backend: Path) -> None:
    """Refuse paths that the kernel truncates, or that grpcio would report with escapes."""
    too_long = [path for path in (own, backend) if len(bytes(path)) > _PATH_BYTES]
    if too_long or not _PLAIN_PATH.fullmatch(str(own)):
        raise SystemFault(
            f"expected socket paths of at most {_PATH_BYTES} plain characters, got {own.parent} and {backend}",
            reason=Reason.FILE_UNUSABLE,
            hint="Give the service a short runtime directory, such as /run/attested-join.",
        )


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()


def _cause(peer: _Peer, error: Exception) -> AttestedError:
    if peer.given_up is not None:
        return peer.given_up
    if isinstance(error, AttestedError):
        return error
    return TransportError(f"expected an answer, got {type(error).__name__}: {error}", reason=Reason.INTERNAL)
