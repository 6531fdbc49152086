# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-verification-service`: evidence of this node for any caller, within limits.

It runs as a user of its own, without capabilities, secrets and TPM. It terminates TLS, limits the rate of calls, and
calls the witness on the same machine.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.host import SystemClock, SystemRandom
from ..core.logs import open_log
from ..core.rate import TokenBuckets, source_of
from ..core.runtime import run_service
from ..errors import AttestedError, Refusal, SystemFault, TransportError
from ..proto.messages import message_class, parse
from ..reasons import Reason
from ..transport.claims import Claims, ClaimsInterceptor, Registry
from ..transport.grpc_server import ServerLimits, UnixServer
from ..transport.limits import Limits, Served
from .machine_front import (
    GRACE_SECONDS,
    Identifying,
    NetworkSide,
    Proving,
    ServedCalls,
    health_of,
    source_of_call,
    until_stopped,
)
from .machine_socket import WITNESS_SOCKET, witness_port
from .verification_exchange import GET_ATTESTATION, IDENTIFY, MAX_REQUEST_BYTES, TESTIFY
from .witness import require_nonce

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from typing import Protocol

    from ..core.host import Clock, Random
    from ..core.logs import Log
    from ..transport.certificate import Observer
    from ..transport.grpc_server import Call, Health
    from ..transport.limits import Seat

    class WitnessPort(Identifying, Protocol):
        """The calls of the witness."""

        async def document(self, nonce: bytes, *, correlation_id: str) -> bytes:
            """Return a document in Constellation's form."""


# Relay connections in plain text to a gRPC service on a unix socket, within limits.
#
# Only Constellation's program uses them, which speaks no TLS here. Of the peer only the address is known, and the peer
# cannot authenticate this service.

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


CONFIG = "/etc/attested/verification-service.yml"

MAX_PLAIN_BYTES = 512
"""A nonce has 32 bytes."""

_WITNESS = "witness"
_EVERYBODY = "everybody"
_RETRY_SECONDS = 5.0
_WATCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationServiceConfig:
    """The configuration file; every entry has a default that fits a node.

    ``questions_per_second`` and ``question_burst`` limit the calls of one address, ``quotes_per_second`` and
    ``quote_burst`` the quotes of all callers together; up to ``waiting`` callers are queued for the TPM.
    ``insecure_constellation_verify_port``: the port that answers Constellation's program in plain text, with evidence
    that is bound to no connection; None turns it off.
    """

    listen_address: str = "0.0.0.0"  # noqa: S104 - any caller may connect; the answer is public and bound to the connection
    listen_port: int = 9091
    witness_socket: Path = Path(WITNESS_SOCKET)
    runtime_directory: Path = Path("/run/attested-verification")
    questions_per_second: float = 1.0
    question_burst: int = 16
    quotes_per_second: float = 2.0
    quote_burst: int = 16
    waiting: int = 8
    insecure_constellation_verify_port: int | None = None


LIMITS = Limits(
    unverified=128,
    unverified_per_source=32,
    served=64,
    served_per_source=16,
    reserved=0,
    unproven_seconds=30.0,
    handshake_bytes=16_384,
    served_seconds=60.0,
)
"""Limits of the connections: an admin opens one to each node, a monitor a few."""

CALLS = ServerLimits(message_bytes=MAX_REQUEST_BYTES, calls=32, calls_per_source=16, idle_seconds=15.0)


PLAIN_LIMITS = Limits(served=16, served_per_source=4, reserved=0, served_patience_seconds=10.0, served_seconds=15.0)
"""Limits of the connections in plain text: such a program makes one call and disconnects."""

PLAIN_CALLS = ServerLimits(
    message_bytes=MAX_PLAIN_BYTES, metadata_bytes=1 << 12, calls=8, calls_per_source=4, idle_seconds=10.0
)

_PLAIN_SHARE = 4
"""Evidence without a binding gets this fraction of the limits, in addition to those of the other calls."""


class Gate:
    """Limits the calls to the witness: for each address, for all together, and in the queue."""

    def __init__(self, config: VerificationServiceConfig, *, clock: Clock) -> None:
        """Count against the limits of ``config``."""
        self._waiting_limit = config.waiting
        self._waiting = 0
        self._questions = TokenBuckets(
            rate=config.questions_per_second,
            burst=config.question_burst,
            clock=clock,
            reason=Reason.VERIFICATION_RATE,
            what="questions a second from one address",
        )
        self._quotes = TokenBuckets(
            rate=config.quotes_per_second,
            burst=config.quote_burst,
            clock=clock,
            reason=Reason.VERIFICATION_RATE,
            what="quotes a second for all together",
        )

    def count_call(self, source: str) -> None:
        """Count a call of ``source`` that does not use the TPM; raises VERIFICATION_RATE."""
        self._questions.take(source)

    @contextmanager
    def quote(self, source: str) -> Iterator[None]:
        """Hold a place in the queue for the TPM; raises VERIFICATION_RATE or VERIFICATION_BUSY."""
        self._questions.take(source)
        if self._waiting >= self._waiting_limit:
            raise Refusal(
                f"expected at most {self._waiting_limit} callers in line for the TPM, got one more",
                reason=Reason.VERIFICATION_BUSY,
            )
        self._quotes.take(_EVERYBODY)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1


class PlainDesk:
    """The one call of Constellation's program: a document over its nonce."""

    def __init__(self, witness: WitnessPort, gate: Gate) -> None:
        """Call ``witness`` within the limits of ``gate``."""
        self._witness = witness
        self._gate = gate

    async def get_attestation(self, request: bytes, call: Call) -> bytes:
        """Answer `verify.API/GetAttestation`; raises MESSAGE_..., BINDING_MALFORMED, VERIFICATION_..."""
        source = source_of_call(call)
        call.line.set(warning="insecure_constellation_verify")
        nonce = parse("verify.GetAttestationRequest", request, limit=MAX_PLAIN_BYTES).nonce
        require_nonce(nonce)
        with self._gate.quote(source):
            document = await self._witness.document(nonce, correlation_id=call.correlation_id)
        answer = message_class("verify.GetAttestationResponse")(attestation=document)
        return bytes(answer.SerializeToString())


class PlainListener:
    """The listener for Constellation's program, with a gRPC service that has no other call."""

    def __init__(self, config: VerificationServiceConfig, *, witness: WitnessPort, log: Log, clock: Clock) -> None:
        """Make the listener and its service; nothing listens yet."""
        share = replace(
            config,
            quotes_per_second=config.quotes_per_second / _PLAIN_SHARE,
            quote_burst=max(1, config.quote_burst // _PLAIN_SHARE),
            waiting=max(1, config.waiting // _PLAIN_SHARE),
        )
        registry, backend = Registry(), config.runtime_directory / "constellation.sock"
        desk = PlainDesk(witness, Gate(share, clock=clock))
        self._config = config
        self._log = log
        self._server = UnixServer(
            socket_path=backend,
            handlers={GET_ATTESTATION: desk.get_attestation},
            log=log,
            interceptors=(ClaimsInterceptor(registry),),
            callers=registry.caller,
            limits=PLAIN_CALLS,
        )
        self._relay = PlainRelay(
            backend_socket=backend,
            registry=registry,
            limits=PLAIN_LIMITS,
            observer=log,
            runtime_directory=config.runtime_directory,
            clock=clock,
            random=SystemRandom(),
        )

    async def start(self, port: int) -> int:
        """Listen and return the port; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
        await self._server.start()
        bound = await self._relay.start(self._config.listen_address, port)
        self._log.event(
            "insecure_constellation_verify", port=bound, warning="evidence without a binding to a connection"
        )
        return bound

    async def stop(self) -> None:
        """Accept no more connections, and let running calls end."""
        await self._relay.stop(grace_seconds=GRACE_SECONDS)
        await self._server.stop()


class VerificationNetworkSide(NetworkSide):
    """The network side of verification: its two calls and, if configured, the listener in plain text."""

    def __init__(
        self, config: VerificationServiceConfig, *, witness: WitnessPort, health: Health, log: Log, clock: Clock
    ) -> None:
        """Call ``witness`` within the limits of ``config``."""
        gate = Gate(config, clock=clock)

        def served(spki: bytes) -> ServedCalls:
            proving = Proving(witness, gate, spki_sha256=spki)
            handlers = {IDENTIFY: proving.identify, TESTIFY: proving.testify}
            return ServedCalls(handlers=handlers, limits=CALLS, connections=LIMITS)

        super().__init__(config, served=served, health=health, log=log, clock=clock)
        self._plain_port = config.insecure_constellation_verify_port
        self._plain = PlainListener(config, witness=witness, log=log, clock=clock)
        self.constellation_port: int | None = None

    async def start(self) -> int:
        """Listen and return the port; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
        if self._plain_port is not None:
            self.constellation_port = await self._plain.start(self._plain_port)
        return await super().start()

    async def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Accept no more connections, and let running calls end."""
        if self.constellation_port is not None:
            await self._plain.stop()
        await super().stop(grace_seconds=grace_seconds)


async def serve(config: VerificationServiceConfig, *, log: Log) -> None:
    """Serve until SIGTERM; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
    health, witness = health_of(_WITNESS), witness_port(config.witness_socket)
    network_side = VerificationNetworkSide(config, witness=witness, health=health, log=log, clock=SystemClock())
    watching = asyncio.create_task(watch(witness, health))
    try:
        await until_stopped(network_side, health, log=log)
    finally:
        watching.cancel()


async def watch(witness: WitnessPort, health: Health) -> None:
    """Report to ``health`` forever whether the witness answers; the call `identity` costs nothing."""
    while True:
        try:
            await witness.identity(correlation_id=_WITNESS)
        except AttestedError as error:
            health.troubled(_WITNESS, f"{error.code}: {error.message}")
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            health.working(_WITNESS)
            await asyncio.sleep(_WATCH_SECONDS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error if it cannot serve."""
    return run_service(
        argv,
        name="attested-verification-service",
        description="Give evidence of this node to any caller.",
        kind=VerificationServiceConfig,
        path=CONFIG,
        serve=lambda config, _path: serve(config, log=open_log()),
    )
