# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-join-service`: relays calls of attested machines to the key service, and logs them.

It runs as a user of its own, without capabilities and secrets. A flaw here can cost availability, but not a key or a
forged ticket. A request is passed on unchanged; the transport has limited the size of everything that is parsed here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from .._deps.crypto import ec, hashes, serialization, x509
from ..core.host import SystemClock, SystemRandom, release
from ..core.logs import open_log
from ..core.metrics import Page, Pages, counted, health_page
from ..core.rate import TokenBuckets
from ..core.runtime import Notifier, Reloader, load_config, run_service, wait_for_stop
from ..errors import AttestedError, Refusal
from ..keyservice.client import SOCKET, AsyncKeyClient, Channel, KeyClient
from ..proto.messages import message_class
from ..reasons import Reason
from ..transport.claims import ClaimsInterceptor, Registry, claims
from ..transport.grpc_server import HEALTH_METHOD, Health, ServerLimits, UnixServer
from ..transport.limits import Limits
from ..transport.relay import Listener
from ..transport.session import ServerCredentials
from .handshake_evidence import DoorkeeperValidator
from .join_client import BINDING_METADATA, CHALLENGE, ISSUE_JOIN_TICKET, REATTEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.host import Clock
    from ..core.logs import Log
    from ..transport.claims import Claims
    from ..transport.grpc_server import Call

CONFIG = "/etc/attested/join-service.yml"

_CERTIFICATE = "certificate"
_LISTENER = "listener"
_RENEW_BEFORE = timedelta(minutes=80)
"""A certificate is valid for two hours, so the key service may be unreachable for this long."""
_LOOK_SECONDS = 30.0
_RETRY_SECONDS = 2.0
_GRACE_SECONDS = 5.0
_PAGE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinServiceConfig:
    """The configuration file; every entry has a default that fits a node.

    ``refusal_floor_seconds``: no refusal is sent earlier, so that its time does not reveal its cause.
    ``challenges_per_second`` and ``challenge_burst`` limit the challenges of one address. ``connections_per_second``
    and ``connection_burst`` limit its connections. ``metrics_port`` of ``metrics_address`` serves `/metrics` (of both
    services), `/healthz` and `/readyz`; 0 turns it off.
    """

    listen_address: str = "0.0.0.0"  # noqa: S104 - nodes connect from any address; attestation decides which may
    listen_port: int = 9090
    key_service_socket: Path = Path(SOCKET)
    runtime_directory: Path = Path("/run/attested-join")
    refusal_floor_seconds: float = 0.25
    challenges_per_second: float = 20.0
    challenge_burst: int = 128
    connections_per_second: float = 20.0
    connection_burst: int = 512
    metrics_address: str = "127.0.0.1"
    metrics_port: int = 0


class Relay:
    """Passes the calls of a node on to the key service, with the claims of the connection."""

    def __init__(self, keys: AsyncKeyClient, rate: TokenBuckets) -> None:
        """Call ``keys``; ``rate`` limits the challenges."""
        self._keys = keys
        self._rate = rate

    async def challenge(self, request: bytes, call: Call) -> bytes:
        """Answer `attested.v1.Attestation/Challenge`."""
        channel = _channel(call)
        self._rate.take(channel.source)
        return await self._keys.challenge(channel, request, correlation_id=call.correlation_id)

    async def issue_join_ticket(self, request: bytes, call: Call) -> bytes:
        """Answer `join.API/IssueJoinTicket`."""
        given = await self._keys.release(_channel(call), request, _binding(call), correlation_id=call.correlation_id)
        claims().prove()
        call.line.set(node=given.node_name)
        answer = message_class("join.IssueJoinTicketResponse")(ticket=given.ticket, ticket_signature=given.signature)
        return bytes(answer.SerializeToString())

    async def reattest(self, request: bytes, call: Call) -> bytes:
        """Answer `attested.v1.Attestation/Reattest`."""
        answer, node = await self._keys.reattest(
            _channel(call), request, _binding(call), correlation_id=call.correlation_id
        )
        claims().prove()
        call.line.set(node=node)
        return answer


class ServerIdentity:
    """The service's certificate, issued by the key service for two hours; its key never leaves this process."""

    def __init__(
        self,
        keys: AsyncKeyClient,
        *,
        health: Health,
        log: Log,
        retry_seconds: float = _RETRY_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """Request certificates from ``keys``, and report success and failure to ``health``."""
        self._clock = clock or SystemClock()
        self._retry_seconds = retry_seconds
        self._keys = keys
        self._health = health
        self._log = log
        self._credentials: ServerCredentials | None = None
        self.obtained = asyncio.Event()

    def current(self) -> ServerCredentials:
        """Return the credentials in use; the listener starts only after `obtained` is set."""
        if self._credentials is None:
            raise Refusal("expected a certificate, there is none yet", reason=Reason.KEY_SERVICE_UNREACHABLE)
        return self._credentials

    async def keep(self) -> None:
        """Renew forever: every 40 minutes, and every few seconds while the key service does not answer.

        Times are wall clock times, which include the time that a machine was suspended.
        """
        pause = 0.0
        while True:
            await asyncio.sleep(pause)
            pause = await self.renew()

    async def renew(self) -> float:
        """Renew if the certificate is no longer fresh; return the seconds until the next check."""
        if self._is_fresh():
            return _LOOK_SECONDS
        try:
            await self._obtain()
        except AttestedError as error:
            self._health.troubled(_CERTIFICATE, f"{error.code}: {error.message}")
            return self._retry_seconds
        self._health.working(_CERTIFICATE)
        self.obtained.set()
        return _LOOK_SECONDS

    def _is_fresh(self) -> bool:
        known = self._credentials
        return known is not None and self._clock.now() < known.chain[0].not_valid_after_utc - _RENEW_BEFORE

    async def _obtain(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "attested join service")])
        request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
        der = request.public_bytes(serialization.Encoding.DER)
        identifier = SystemRandom().token(8).hex()
        chain = await self._keys.server_certificate(der, correlation_id=identifier)
        self._credentials = ServerCredentials.checked(tuple(x509.load_pem_x509_certificates(chain)), key)
        self._log.event("certificate", correlation_id=identifier)


async def serve(config: JoinServiceConfig, *, log: Log, path: str = CONFIG) -> None:
    """Serve until SIGTERM; raises PORT_UNAVAILABLE and FILE_UNUSABLE.

    On SIGHUP ``path`` is read again: the challenge limits of an address change, all else needs a restart.
    """
    health = Health(Notifier(), version=release(), parts=(_CERTIFICATE, _LISTENER))
    keys = AsyncKeyClient(config.key_service_socket)
    identity = ServerIdentity(keys, health=health, log=log)
    registry = Registry()
    rate = TokenBuckets(rate=config.challenges_per_second, burst=config.challenge_burst, clock=SystemClock())
    server = _server(config, Relay(keys, rate), registry=registry, health=health, log=log)
    listener = _listener(config, identity, registry=registry, log=log)
    reloader = _reloader(path, rate, log=log)
    reloader.listen()
    pages = _pages(config, (listener, server), health, reloader, log) if config.metrics_port else None
    keeping = asyncio.create_task(identity.keep())
    stop = asyncio.create_task(wait_for_stop())
    starting = asyncio.create_task(_start(config, identity, server, listener, health))
    try:
        await asyncio.wait((stop, starting), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
        log.event("stopping", signal=await stop)
    finally:
        for task in (starting, keeping, stop):
            task.cancel()
        await listener.stop(grace_seconds=_GRACE_SECONDS)
        await server.stop()
        if pages is not None:
            pages.stop()


def _listener(config: JoinServiceConfig, identity: ServerIdentity, *, registry: Registry, log: Log) -> Listener:
    return Listener(
        backend_socket=config.runtime_directory / "service.sock",
        registry=registry,
        server_credentials=identity.current,
        validator=DoorkeeperValidator(),
        limits=Limits(
            judges_inline=True,
            arrivals_per_second=config.connections_per_second,
            arrival_burst=config.connection_burst,
        ),
        observer=log,
        runtime_directory=config.runtime_directory,
    )


def _reloader(path: str, rate: TokenBuckets, *, log: Log) -> Reloader[JoinServiceConfig]:
    return Reloader(
        lambda: load_config(JoinServiceConfig, path),
        lambda new: rate.configure(rate=new.challenges_per_second, burst=new.challenge_burst),
        log=log,
    )


def _pages(
    config: JoinServiceConfig,
    servers: tuple[Listener, UnixServer],
    health: Health,
    reloader: Reloader[JoinServiceConfig],
    log: Log,
) -> Pages:
    listener, server = servers
    metrics = counted("join", log)
    keys = KeyClient(config.key_service_socket, timeout_seconds=_PAGE_SECONDS)
    if metrics is not None:
        metrics.gauge("config_generation", "Readings of the configuration.", lambda: reloader.generation)
        metrics.gauge("unverified_connections", "Connections that have shown nothing yet.", lambda: listener.unverified)
        metrics.gauge("turned_away", "Connections of addresses that came too often.", lambda: listener.turned_away)
        metrics.gauge("waiting_connections", "Newcomers that wait for their handshake.", lambda: listener.waiting)
        metrics.gauge("attested_connections", "Connections that have shown evidence.", lambda: listener.served)
        metrics.gauge("unproven_connections", "Those of them that have no granted call.", lambda: listener.unproven)
        metrics.gauge("calls", "Calls whose answer is being decided.", lambda: server.calls)

    def figures() -> Page:
        return Page(200, (metrics.exposition() if metrics else b"") + _of_the_key_service(keys))

    pages = Pages(
        {
            "/metrics": figures,
            "/healthz": lambda: health_page("alive"),
            "/readyz": lambda: health_page(health.sentence, is_good=health.is_serving),
        }
    )
    log.event("metrics", address=config.metrics_address, port=pages.start(config.metrics_address, config.metrics_port))
    return pages


def _of_the_key_service(keys: KeyClient) -> bytes:
    try:
        return keys.health().metrics
    except AttestedError:
        return b"# the key service does not answer\n"


async def _start(
    config: JoinServiceConfig, identity: ServerIdentity, server: UnixServer, listener: Listener, health: Health
) -> None:
    await server.start()
    await identity.obtained.wait()
    await listener.start(config.listen_address, config.listen_port)
    health.working(_LISTENER)


def _server(config: JoinServiceConfig, relay: Relay, *, registry: Registry, health: Health, log: Log) -> UnixServer:
    return UnixServer(
        socket_path=config.runtime_directory / "service.sock",
        handlers={
            CHALLENGE: relay.challenge,
            HEALTH_METHOD: health.handle,
            ISSUE_JOIN_TICKET: relay.issue_join_ticket,
            REATTEST: relay.reattest,
        },
        log=log,
        interceptors=(ClaimsInterceptor(registry),),
        limits=ServerLimits(refusal_floor_seconds=config.refusal_floor_seconds, calls_reserved=16),
        callers=registry.caller,
    )


def _binding(call: Call) -> bytes:
    binding = call.metadata.get(BINDING_METADATA)
    if not isinstance(binding, bytes):
        raise Refusal(f"expected the metadata {BINDING_METADATA}, got none", reason=Reason.BINDING_MISSING)
    return binding


def _channel(call: Call) -> Channel:
    known: Claims = claims()
    call.line.set(remote=known.remote)
    return Channel(
        exporter=known.exporter,
        spki_sha256=known.spki_sha256,
        peer_nonce=known.peer_nonce,
        evidence=known.evidence,
        source=known.source,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error if it cannot serve."""
    return run_service(
        argv,
        name="attested-join-service",
        description="Relay between attested machines and the key service of this cluster.",
        kind=JoinServiceConfig,
        path=CONFIG,
        serve=lambda config, path: serve(config, log=open_log(), path=path),
    )
