# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-init-service`: TCP 9000 of a machine that is no node yet (docs/adr/0016).

Its own user, no capabilities, no secrets and no TPM: it ends TLS, counts, and asks the bootstrapper beside it. Its
certificate is made at each start and means nothing by itself; evidence binds its key and the very connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.host import SystemClock, release
from ..core.logs import open_log
from ..core.rate import TokenBuckets
from ..core.runtime import Notifier, run_service, wait_for_stop
from ..proto.messages import parse
from ..reasons import Reason
from ..transport.certificate import make_bare_certificate, new_key, spki_sha256
from ..transport.claims import ClaimsInterceptor, Registry, claims
from ..transport.grpc_server import ServerLimits, UnixServer
from ..transport.health import HEALTH_METHOD, Health
from ..transport.limits import Limits
from ..transport.relay import Listener
from ..transport.session import ServerCredentials
from .init_messages import ADMIN_METADATA, IDENTIFY, INIT, MAX_REQUEST_BYTES, TESTIFY
from .machine_socket import INIT_SOCKET, Begin, MachinePort, init_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from ..core.host import Clock
    from ..core.logs import Log
    from ..transport.grpc_server import Call, Handler, StreamHandler

CONFIG = "/etc/attested/init-service.yml"

_LISTENER = "listener"
_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InitServiceConfig:
    """The configuration file; every entry has a default that fits a fresh machine.

    ``calls_per_second`` and ``call_burst`` bound what one address may ask.
    """

    listen_address: str = "0.0.0.0"  # noqa: S104 - the admin may come from anywhere, and is known by a signature
    listen_port: int = 9000
    bootstrapper_socket: Path = Path(INIT_SOCKET)
    runtime_directory: Path = Path("/run/attested-init")
    calls_per_second: float = 0.5
    call_burst: int = 12


LIMITS = Limits(
    unverified=64,
    unverified_per_source=16,
    served=16,
    served_per_source=8,
    reserved=0,
    unproven_seconds=30.0,
    handshake_bytes=16_384,
    served_seconds=7200.0,
)
"""Connections: one admin, and room for another one's mistake; an init may take long on a slow machine."""

CALLS = ServerLimits(
    message_bytes=MAX_REQUEST_BYTES, calls=32, calls_per_source=8, call_seconds=60.0, refusal_floor_seconds=0.3
)
"""A refusal takes as long whether a secret was hashed for it or not."""


class Identifying(Protocol):
    """The process that holds the TPM, for the two calls that prove what the machine is."""

    async def identity(self, *, correlation_id: str) -> bytes:
        """Return the serialised `ChallengeRequest`."""

    async def testimony(
        self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str, correlation_id: str
    ) -> bytes:
        """Return the serialised `Testimony` for a challenge as it came."""


class Reception:
    """The two calls before any request, passed on with what this service knows of the connection."""

    def __init__(self, port: Identifying, buckets: TokenBuckets, *, spki_sha256: bytes) -> None:
        """Ask at ``port`` as often as ``buckets`` allow; ``spki_sha256`` names the key of our certificate."""
        self._identifying = port
        self._buckets = buckets
        self.spki_sha256 = spki_sha256

    async def identify(self, request: bytes, call: Call) -> bytes:
        """Answer `Identify`."""
        self.source(call)
        parse("attested.v1.IdentifyRequest", request, limit=MAX_REQUEST_BYTES)
        return await self._identifying.identity(correlation_id=call.correlation_id)

    async def testify(self, request: bytes, call: Call) -> bytes:
        """Answer `Testify`; the request goes on as it came."""
        return await self._identifying.testimony(
            request,
            exporter=claims().exporter,
            spki_sha256=self.spki_sha256,
            source=self.source(call),
            correlation_id=call.correlation_id,
        )

    def begin(self, request: bytes, call: Call) -> Begin:
        """Return a request as it came, with the admin's proof and the channel."""
        proof = call.metadata.get(ADMIN_METADATA, b"")
        return Begin(
            request=request,
            admin_proof=proof if isinstance(proof, bytes) else b"",
            exporter=claims().exporter,
            spki_sha256=self.spki_sha256,
            source=self.source(call),
        )

    def source(self, call: Call) -> str:
        """Return the network that a call comes from, noted and counted; raises the reason of the buckets."""
        known = claims()
        call.line.set(remote=known.remote)
        self._buckets.take(known.source)
        return known.source


class Counter(Reception):
    """The three calls of an admin."""

    def __init__(self, port: MachinePort, buckets: TokenBuckets, *, spki_sha256: bytes) -> None:
        """Ask at ``port``."""
        super().__init__(port, buckets, spki_sha256=spki_sha256)
        self._port = port

    async def init(self, request: bytes, call: Call) -> AsyncIterator[bytes]:
        """Answer `init.API/Init`: begin (or find) the job, then say what it says."""
        handle = await self._port.begin(self.begin(request, call), correlation_id=call.correlation_id)
        claims().prove()
        seen, ended = 0, False
        while not ended:
            answers, ended = await self._port.follow(handle, seen)
            seen += len(answers)
            for one in answers:
                yield one


class Addressed(Protocol):
    """Where a service for admins listens, and how often one address may ask."""

    @property
    def listen_address(self) -> str:
        """An address of this machine."""

    @property
    def listen_port(self) -> int:
        """The port, 0 for any."""

    @property
    def runtime_directory(self) -> Path:
        """Where its own socket lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The calls of a service by their paths, and the bounds of its server."""

    handlers: Mapping[str, Handler]
    limits: ServerLimits
    streams: Mapping[str, StreamHandler] = field(default_factory=dict)


class AdminFront:
    """A service for admins: TLS with a key of its own that lives as long as it does, limits, its calls."""

    def __init__(
        self,
        config: Addressed,
        *,
        served: Callable[[bytes], Served],
        health: Health,
        log: Log,
        clock: Clock,
    ) -> None:
        """Make key and certificate, for whose hash ``served`` gives the calls; nothing listens yet."""
        key, registry = new_key(), Registry()
        credentials = ServerCredentials((make_bare_certificate(key, now=clock.now()),), key)
        calls = served(spki_sha256(key.public_key()))
        backend = config.runtime_directory / "service.sock"
        self._config = config
        self._server = UnixServer(
            socket_path=backend,
            handlers={HEALTH_METHOD: health.handle, **calls.handlers},
            streams=calls.streams,
            log=log,
            interceptors=(ClaimsInterceptor(registry),),
            callers=registry.caller,
            limits=calls.limits,
        )
        self._listener = Listener(
            backend_socket=backend,
            registry=registry,
            server_credentials=lambda: credentials,
            limits=LIMITS,
            observer=log,
            runtime_directory=config.runtime_directory,
        )

    async def start(self) -> int:
        """Listen and return the port; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
        await self._server.start()
        return await self._listener.start(self._config.listen_address, self._config.listen_port)

    async def stop(self, *, grace_seconds: float = _GRACE_SECONDS) -> None:
        """Take no more callers, give the open connections ``grace_seconds``; no job ends by it."""
        await self._listener.stop(grace_seconds=grace_seconds)
        await self._server.stop()


class Front(AdminFront):
    """The network side of init."""

    def __init__(self, config: InitServiceConfig, *, port: MachinePort, health: Health, log: Log, clock: Clock) -> None:
        """Ask at ``port`` what ``config`` allows to be asked."""
        buckets = TokenBuckets(
            rate=config.calls_per_second,
            burst=config.call_burst,
            clock=clock,
            reason=Reason.ADMIN_RATE,
            what="calls a second from one address",
        )

        def served(spki: bytes) -> Served:
            counter = Counter(port, buckets, spki_sha256=spki)
            handlers = {IDENTIFY: counter.identify, TESTIFY: counter.testify}
            return Served(handlers=handlers, streams={INIT: counter.init}, limits=CALLS)

        super().__init__(config, served=served, health=health, log=log, clock=clock)


async def serve(config: InitServiceConfig, *, log: Log) -> None:
    """Serve until SIGTERM; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
    port = init_port(config.bootstrapper_socket)
    await until_stopped(lambda health: Front(config, port=port, health=health, log=log, clock=SystemClock()), log=log)


async def until_stopped(front_of: Callable[[Health], AdminFront], *, log: Log) -> None:
    """Serve with the front that is made for the service's health until SIGTERM; raises what its start raises."""
    health = Health(Notifier(), version=release(), parts=(_LISTENER,))
    front = front_of(health)
    try:
        await front.start()
        health.working(_LISTENER)
        log.event("stopping", signal=await wait_for_stop())
    finally:
        await front.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error where it cannot serve."""
    return run_service(
        argv,
        name="attested-init-service",
        description="Let an admin make a cluster on this machine.",
        kind=InitServiceConfig,
        path=CONFIG,
        serve=lambda config, _path: serve(config, log=open_log()),
    )
