# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-verification-service`: evidence of this node for any caller, within limits.

It runs as a user of its own, without capabilities, secrets and TPM. It terminates TLS, limits the rate of calls, and
calls the witness on the same machine.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.host import SystemClock, SystemRandom
from ..core.logs import open_log
from ..core.rate import TokenBuckets
from ..core.runtime import run_service
from ..errors import AttestedError, Refusal
from ..proto.messages import message_class, parse
from ..reasons import Reason
from ..transport.claims import ClaimsInterceptor, Registry
from ..transport.grpc_server import ServerLimits, UnixServer
from ..transport.limits import Limits
from .machine_front import GRACE_SECONDS, Identifying, NetworkSide, Proving, Served, health_of, source_of, until_stopped
from .machine_socket import WITNESS_SOCKET, witness_port
from .verification_exchange import GET_ATTESTATION, IDENTIFY, MAX_REQUEST_BYTES, TESTIFY
from .verification_plain import PlainRelay
from .witness import require_nonce

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Protocol

    from ..core.host import Clock
    from ..core.logs import Log
    from ..transport.grpc_server import Call
    from ..transport.health import Health

    class WitnessPort(Identifying, Protocol):
        """The calls of the witness."""

        async def document(self, nonce: bytes, *, correlation_id: str) -> bytes:
            """Return a document in Constellation's form."""


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
        source = source_of(call)
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

        def served(spki: bytes) -> Served:
            proving = Proving(witness, gate, spki_sha256=spki)
            handlers = {IDENTIFY: proving.identify, TESTIFY: proving.testify}
            return Served(handlers=handlers, limits=CALLS, connections=LIMITS)

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
