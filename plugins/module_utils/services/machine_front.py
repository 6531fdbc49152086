# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network side of verification, init and recovery; each of them gives it a table of calls.

It has no secret and no TPM. It terminates TLS, limits the rate of calls, and calls the process with the TPM
(`machine_socket`). Its certificate is made at each start and proves nothing by itself; the evidence binds the
certificate's key and the connection.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..core.host import release
from ..core.rate import TokenBuckets
from ..core.runtime import Notifier, wait_for_stop
from ..proto.messages import parse
from ..reasons import Reason
from ..transport.certificate import make_bare_certificate, new_key, spki_sha256
from ..transport.claims import ClaimsInterceptor, Registry, claims
from ..transport.grpc_server import HEALTH_METHOD, Health, ServerLimits, UnixServer
from ..transport.limits import Limits
from ..transport.relay import Listener
from ..transport.session import ServerCredentials
from .init_messages import ADMIN_METADATA
from .machine_socket import Begin
from .verification_exchange import MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..core.host import Clock
    from ..core.logs import Log
    from ..transport.grpc_server import Call, Handler, StreamHandler

GRACE_SECONDS = 5.0

_LISTENER = "listener"

ADMINS = Limits(
    unverified=64,
    unverified_per_source=16,
    served=16,
    served_per_source=8,
    reserved=0,
    unproven_seconds=30.0,
    handshake_bytes=16_384,
    served_seconds=7200.0,
)
"""Limits of the connections, for a few admins at a time; an init may take long on a slow machine."""


class Identifying(Protocol):
    """The process that holds the TPM, for the two calls that prove what the machine is (`MachinePort`)."""

    async def identity(self, *, correlation_id: str) -> bytes:
        """Return the serialised `ChallengeRequest`."""

    async def testimony(
        self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str, correlation_id: str
    ) -> bytes:
        """Return the serialised `Testimony` for a challenge as it came."""


class Bounding(Protocol):
    """Limits the calls of a source."""

    def count_call(self, source: str) -> None:
        """Count a call of ``source``; raises the reason of the exceeded limit."""

    def quote(self, source: str) -> AbstractContextManager[None]:
        """Count a call of ``source`` and hold a place while its quote is made; raises as `count_call` does."""


class Addressed(Protocol):
    """Where a service listens."""

    @property
    def listen_address(self) -> str:
        """An address of this machine."""

    @property
    def listen_port(self) -> int:
        """The port, 0 for any."""

    @property
    def runtime_directory(self) -> Path:
        """The directory of the service's own socket."""


class ForAdmins(Addressed, Protocol):
    """The limits of one address at a service for admins."""

    @property
    def calls_per_second(self) -> float:
        """The calls per second in the long run."""

    @property
    def call_burst(self) -> int:
        """The calls at once."""


class AdminGate:
    """Limits the calls of one address: a source with too many calls has to wait, and is not locked out."""

    def __init__(self, config: ForAdmins, *, clock: Clock) -> None:
        """Count against the limits of ``config``; more calls raise ADMIN_RATE."""
        self._buckets = TokenBuckets(
            rate=config.calls_per_second,
            burst=config.call_burst,
            clock=clock,
            reason=Reason.ADMIN_RATE,
            what="calls a second from one address",
        )

    def count_call(self, source: str) -> None:
        """Count a call of ``source``."""
        self._buckets.take(source)

    @contextmanager
    def quote(self, source: str) -> Iterator[None]:
        """Count the call like any other."""
        self._buckets.take(source)
        yield


class Proving:
    """Passes `Identify` and `Testify` on with the claims of the connection, and counts further calls."""

    def __init__(self, port: Identifying, gate: Bounding, *, spki_sha256: bytes) -> None:
        """Call ``port`` within the limits of ``gate``; ``spki_sha256`` is the hash of the server certificate's key."""
        self._port = port
        self._gate = gate
        self._spki_sha256 = spki_sha256

    async def identify(self, request: bytes, call: Call) -> bytes:
        """Answer `Identify`."""
        self._gate.count_call(source_of_call(call))
        parse("attested.v1.IdentifyRequest", request, limit=MAX_REQUEST_BYTES)
        return await self._port.identity(correlation_id=call.correlation_id)

    async def testify(self, request: bytes, call: Call) -> bytes:
        """Answer `Testify`; the request is passed on unchanged."""
        source = source_of_call(call)
        with self._gate.quote(source):
            return await self._port.testimony(
                request,
                exporter=claims().exporter,
                spki_sha256=self._spki_sha256,
                source=source,
                correlation_id=call.correlation_id,
            )

    def begin(self, request: bytes, call: Call) -> Begin:
        """Count a request and return it unchanged, with the admin's proof and the channel."""
        source = source_of_call(call)
        self._gate.count_call(source)
        proof = call.metadata.get(ADMIN_METADATA, b"")
        return Begin(
            request=request,
            admin_proof=proof if isinstance(proof, bytes) else b"",
            exporter=claims().exporter,
            spki_sha256=self._spki_sha256,
            source=source,
        )


def source_of_call(call: Call) -> str:
    """Return the network that a call comes from; the log line gets the address."""
    known = claims()
    call.line.set(remote=known.remote)
    return known.source


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCalls:
    """The calls of a service by path, and the limits of its server and of its connections."""

    handlers: Mapping[str, Handler]
    limits: ServerLimits
    connections: Limits = ADMINS
    streams: Mapping[str, StreamHandler] = field(default_factory=dict)


class NetworkSide:
    """A TLS listener with limits and calls; its key exists only in this process."""

    def __init__(
        self, config: Addressed, *, served: Callable[[bytes], ServedCalls], health: Health, log: Log, clock: Clock
    ) -> None:
        """Make key and certificate; ``served`` returns the calls for the key's hash. Nothing listens yet."""
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
            limits=calls.connections,
            observer=log,
            runtime_directory=config.runtime_directory,
        )

    async def start(self) -> int:
        """Listen and return the port; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
        await self._server.start()
        return await self._listener.start(self._config.listen_address, self._config.listen_port)

    async def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Accept no more connections and give the open ones ``grace_seconds``; a running job continues."""
        await self._listener.stop(grace_seconds=grace_seconds)
        await self._server.stop()


def health_of(*parts: str) -> Health:
    """Return the health of this service, with its listener and ``parts``."""
    return Health(Notifier(), version=release(), parts=(_LISTENER, *parts))


async def until_stopped(network_side: NetworkSide, health: Health, *, log: Log) -> None:
    """Serve until SIGTERM; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
    try:
        await network_side.start()
        health.working(_LISTENER)
        log.event("stopping", signal=await wait_for_stop())
    finally:
        await network_side.stop()
