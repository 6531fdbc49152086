# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-verification-service`: evidence of this node for anybody who asks, within bounds.

Its own user, no capabilities, no secrets and no TPM: it ends TLS, counts and asks the witness beside it. Its
certificate is made at each start and means nothing by itself; the evidence binds its key and the very connection.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.host import SystemClock, SystemRandom, release
from ..core.logs import open_log
from ..core.rate import TokenBuckets
from ..core.runtime import Notifier, run_service, wait_for_stop
from ..errors import AttestedError, Refusal
from ..proto.messages import message_class, parse
from ..reasons import Reason
from ..transport.certificate import make_bare_certificate, new_key, spki_sha256
from ..transport.claims import ClaimsInterceptor, Registry, claims
from ..transport.grpc_server import ServerLimits, UnixServer
from ..transport.health import HEALTH_METHOD, Health
from ..transport.limits import Limits
from ..transport.relay import Listener
from ..transport.session import ServerCredentials
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

    class WitnessPort(Protocol):
        """The questions, asked of the witness."""

        async def identity(self, *, correlation_id: str) -> bytes:
            """Return the serialised `ChallengeRequest`."""

        async def testimony(
            self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str, correlation_id: str
        ) -> bytes:
            """Return the serialised `Testimony`."""

        async def document(self, nonce: bytes, *, correlation_id: str) -> bytes:
            """Return a document in Constellation's form."""


CONFIG = "/etc/attested/verification-service.yml"

MAX_PLAIN_BYTES = 512
"""A nonce has 32 bytes."""

_LISTENER = "listener"
_WITNESS = "witness"
_EVERYBODY = "everybody"
_GRACE_SECONDS = 5.0
_RETRY_SECONDS = 5.0
_WATCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationServiceConfig:
    """The configuration file; every entry has a default that fits a node.

    ``questions_per_second`` and ``question_burst`` bound what one address may ask, ``quotes_per_second`` and
    ``quote_burst`` what all together may ask of the TPM; ``waiting`` callers may stand in line for it.
    ``insecure_constellation_verify_port``: where Constellation's program is answered in plain text, by evidence that is
    bound to no connection; None: nowhere.
    """

    listen_address: str = "0.0.0.0"  # noqa: S104 - anybody may ask; the answer is public and bound to who asked
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
"""Connections: an admin opens one to each node, a monitor a few; a node does not serve a fleet."""

CALLS = ServerLimits(message_bytes=MAX_REQUEST_BYTES, calls=32, calls_per_source=16, idle_seconds=15.0)


PLAIN_LIMITS = Limits(served=16, served_per_source=4, reserved=0, served_patience_seconds=10.0, served_seconds=15.0)
"""Connections in plain text: people's programs ask once and go."""

PLAIN_CALLS = ServerLimits(
    message_bytes=MAX_PLAIN_BYTES, metadata_bytes=1 << 12, calls=8, calls_per_source=4, idle_seconds=10.0
)

_PLAIN_SHARE = 4
"""What is bound to no connection gets this part of the quotes that others may ask for, and takes none of theirs."""


class Gate:
    """Decides who may ask the witness now: each address by itself, all together, and how many wait."""

    def __init__(self, config: VerificationServiceConfig, *, clock: Clock) -> None:
        """Count against the bounds of ``config``."""
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

    def ask(self, source: str) -> None:
        """Let ``source`` ask something that costs the TPM nothing; raises VERIFICATION_RATE."""
        self._questions.take(source)

    @contextmanager
    def quote(self, source: str) -> Iterator[None]:
        """Hold a place in the line for the TPM; raises VERIFICATION_RATE or VERIFICATION_BUSY."""
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


class Desk:
    """The two calls of a stranger, passed on to the witness with what this service knows of the connection."""

    def __init__(self, witness: WitnessPort, gate: Gate, *, spki_sha256: bytes) -> None:
        """Ask ``witness`` as often as ``gate`` allows; ``spki_sha256`` names the key of our certificate."""
        self._witness = witness
        self._gate = gate
        self._spki_sha256 = spki_sha256

    async def identify(self, request: bytes, call: Call) -> bytes:
        """Answer `attested.v1.Verification/Identify`."""
        self._gate.ask(_source(call))
        parse("attested.v1.IdentifyRequest", request, limit=MAX_REQUEST_BYTES)
        return await self._witness.identity(correlation_id=call.correlation_id)

    async def testify(self, request: bytes, call: Call) -> bytes:
        """Answer `attested.v1.Verification/Testify`; the request goes on as it came."""
        source = _source(call)
        with self._gate.quote(source):
            return await self._witness.testimony(
                request,
                exporter=claims().exporter,
                spki_sha256=self._spki_sha256,
                source=source,
                correlation_id=call.correlation_id,
            )


class PlainDesk:
    """The one call of Constellation's program: a document over its nonce."""

    def __init__(self, witness: WitnessPort, gate: Gate) -> None:
        """Ask ``witness`` as often as ``gate`` allows."""
        self._witness = witness
        self._gate = gate

    async def get_attestation(self, request: bytes, call: Call) -> bytes:
        """Answer `verify.API/GetAttestation`; raises MESSAGE_..., BINDING_MALFORMED, VERIFICATION_..."""
        source = _source(call)
        call.line.set(warning="insecure_constellation_verify")
        nonce = parse("verify.GetAttestationRequest", request, limit=MAX_PLAIN_BYTES).nonce
        require_nonce(nonce)
        with self._gate.quote(source):
            document = await self._witness.document(nonce, correlation_id=call.correlation_id)
        answer = message_class("verify.GetAttestationResponse")(attestation=document)
        return bytes(answer.SerializeToString())


class PlainFront:
    """The listener for Constellation's program, and a service of its own behind it, which has no other call."""

    def __init__(self, config: VerificationServiceConfig, *, witness: WitnessPort, log: Log, clock: Clock) -> None:
        """Make both; nothing listens yet."""
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
        """Take no more callers, let running ones end."""
        await self._relay.stop(grace_seconds=_GRACE_SECONDS)
        await self._server.stop()


class Front:
    """The network side: TLS, the counting, the two calls; with a key of its own that lives as long as it does."""

    def __init__(
        self, config: VerificationServiceConfig, *, witness: WitnessPort, health: Health, log: Log, clock: Clock
    ) -> None:
        """Make key and certificate; nothing listens yet."""
        key, registry = new_key(), Registry()
        credentials = ServerCredentials((make_bare_certificate(key, now=clock.now()),), key)
        desk = Desk(witness, Gate(config, clock=clock), spki_sha256=spki_sha256(key.public_key()))
        backend = config.runtime_directory / "service.sock"
        self._config = config
        self._plain = PlainFront(config, witness=witness, log=log, clock=clock)
        self.constellation_port: int | None = None
        self._server = UnixServer(
            socket_path=backend,
            handlers={HEALTH_METHOD: health.handle, IDENTIFY: desk.identify, TESTIFY: desk.testify},
            log=log,
            interceptors=(ClaimsInterceptor(registry),),
            callers=registry.caller,
            limits=CALLS,
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
        wanted = self._config.insecure_constellation_verify_port
        if wanted is not None:
            self.constellation_port = await self._plain.start(wanted)
        return await self._listener.start(self._config.listen_address, self._config.listen_port)

    async def stop(self) -> None:
        """Take no more callers, let running ones end."""
        if self.constellation_port is not None:
            await self._plain.stop()
        await self._listener.stop(grace_seconds=_GRACE_SECONDS)
        await self._server.stop()


async def serve(config: VerificationServiceConfig, *, log: Log) -> None:
    """Serve until SIGTERM; raises PORT_UNAVAILABLE and FILE_UNUSABLE."""
    health = Health(Notifier(), version=release(), parts=(_LISTENER, _WITNESS))
    witness = witness_port(config.witness_socket)
    front = Front(config, witness=witness, health=health, log=log, clock=SystemClock())
    watching = asyncio.create_task(watch(witness, health))
    try:
        await front.start()
        health.working(_LISTENER)
        log.event("stopping", signal=await wait_for_stop())
    finally:
        watching.cancel()
        await front.stop()


async def watch(witness: WitnessPort, health: Health) -> None:
    """Tell ``health`` for ever whether the witness answers; its identity costs it nothing."""
    while True:
        try:
            await witness.identity(correlation_id=_WITNESS)
        except AttestedError as error:
            health.troubled(_WITNESS, f"{error.code}: {error.message}")
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            health.working(_WITNESS)
            await asyncio.sleep(_WATCH_SECONDS)


def _source(call: Call) -> str:
    known = claims()
    call.line.set(remote=known.remote)
    return known.source


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error where it cannot serve."""
    return run_service(
        argv,
        name="attested-verification-service",
        description="Give evidence of this node to anybody who asks.",
        kind=VerificationServiceConfig,
        path=CONFIG,
        serve=lambda config, _path: serve(config, log=open_log()),
    )
