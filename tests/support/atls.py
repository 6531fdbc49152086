# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both ends of attested TLS for tests: unusual credentials, valid or forged evidence, a running bed.

The evidence is a hash that anyone can compute: these tests cover the transport, which carries any evidence to any
verifier. The tests of join use quotes of real TPMs.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import (
    JoinCa,
    make_join_ca,
    sign_server_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import (
    EVIDENCE_OID,
    make_certificate,
    new_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.claims import (
    Claims,
    ClaimsInterceptor,
    Registry,
    claims,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import (
    Call,
    ServerLimits,
    UnixServer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.limits import Limits
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.relay import Listener
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.session import (
    ServerCredentials,
    TlsSession,
    client_context,
    server_context,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

CLUSTER_ID = bytes(range(32))
ECHO = "/test.Echo/Say"
REFUSE = "/test.Echo/Refuse"
QUICK = Limits(rejection_floor_seconds=0.05, newcomers_per_second=1000, newcomer_burst=1000)


def honest_evidence(user_data: bytes, nonce: bytes) -> bytes:
    """Return the evidence that `HashValidator` accepts."""
    return hashlib.sha256(b"evidence" + user_data + nonce).digest()


@dataclass
class HashIssuer:
    """Issue `honest_evidence`, or the result of ``forge``, and count the requests."""

    forge: Callable[[bytes, bytes], bytes] = field(default=honest_evidence)
    oid: str = EVIDENCE_OID
    calls: list[tuple[bytes, bytes]] = field(default_factory=list)

    def issue(self, *, user_data: bytes, nonce: bytes) -> bytes:
        """Record the request and answer it."""
        self.calls.append((user_data, nonce))
        return self.forge(user_data, nonce)


@dataclass
class HashValidator:
    """Accept only `honest_evidence`."""

    oid: str = EVIDENCE_OID
    calls: list[bytes] = field(default_factory=list)

    def validate(self, document: bytes, *, user_data: bytes, nonce: bytes) -> bytes:
        """Compare."""
        self.calls.append(document)
        if document != honest_evidence(user_data, nonce):
            raise Refusal("expected honest evidence, got another", reason=Reason.EVIDENCE_MISSING)
        return b""


@dataclass
class Events:
    """Record the events of the relay."""

    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def event(self, name: str, /, **fields: str | float | bool | None) -> None:
        """Record an event."""
        self.seen.append((name, fields))

    def reasons(self, name: str) -> list[str]:
        """Return the reason codes of all events ``name``."""
        return [fields["reason"] for event, fields in self.seen if event == name]


def signing_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a DER request over ``key``."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def service_credentials(
    ca: JoinCa, *, cluster_id: bytes = CLUSTER_ID, now: datetime | None = None
) -> ServerCredentials:
    """Return the credentials of the key service for a join service at ``now``."""
    key = ec.generate_private_key(ec.SECP256R1())
    chain = sign_server_certificate(signing_request(key), ca=ca, cluster_id=cluster_id, now=now or datetime.now(UTC))
    return ServerCredentials.checked(tuple(x509.load_pem_x509_certificates(chain)), key)


def expired_credentials(ca: JoinCa) -> ServerCredentials:
    """Return credentials that were not renewed for three days."""
    return service_credentials(ca, now=datetime.now(UTC) - timedelta(days=3))


@dataclass
class Bed:
    """A running relay with its service; ``port`` on 127.0.0.1, ``seen`` has the calls of the service."""

    ca: JoinCa
    port: int
    registry: Registry
    listener: Listener
    events: Events
    validator: HashValidator
    directory: Path
    backend: Path
    seen: list[tuple[Claims, bytes]]
    credentials: list[ServerCredentials]
    written: io.StringIO

    def lines(self) -> list[dict[str, Any]]:
        """Return the service's log, one entry per call."""
        return [json.loads(line) for line in self.written.getvalue().splitlines()]

    @property
    def endpoint(self) -> str:
        """The address of the relay."""
        return f"127.0.0.1:{self.port}"

    @property
    def pins(self) -> JoinCaPins:
        """The pins of a machine of this cluster."""
        return JoinCaPins.from_pem(self.ca.certificate)

    async def say(self, request: bytes = b"hello", *, issuer: HashIssuer | None = None) -> bytes:
        """Connect as a valid machine and return the answer to one call."""
        async with connect(
            self.endpoint, pins=self.pins, cluster_id=CLUSTER_ID, issuer=issuer or HashIssuer(), timeout_seconds=10
        ) as connection:
            return await call(connection.channel(), request)


async def call(channel: Any, request: bytes = b"hello", *, path: str = ECHO, seconds: float = 10) -> bytes:
    """Make one unary call of bytes."""
    return bytes(await channel.unary_unary(path)(request, timeout=seconds))


@asynccontextmanager
async def running_bed(
    *, limits: Limits = QUICK, calls: ServerLimits | None = None, **listener_options: Any
) -> AsyncIterator[Bed]:
    """Run a service behind a relay until the block ends."""
    ca = make_join_ca("test", now=datetime.now(UTC))
    registry, events, validator = Registry(), Events(), HashValidator()
    seen: list[tuple[Claims, bytes]] = []
    credentials = [service_credentials(ca)]

    async def echo(request: bytes, call: Call) -> bytes:
        del call
        seen.append((claims(), request))
        return claims().exporter + request

    async def refuse(request: bytes, call: Call) -> bytes:
        del request, call
        raise Refusal("expected another request", reason=Reason.EVIDENCE_MISSING)

    written = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="bed-") as name:
        directory = Path(name)
        backend = directory / "backend"
        server = UnixServer(
            socket_path=backend,
            handlers={ECHO: echo, REFUSE: refuse},
            log=open_log(stream=written, environ={}),
            limits=calls,
            interceptors=(ClaimsInterceptor(registry),),
            callers=registry.caller,
        )
        options: dict[str, Any] = {
            "server_credentials": lambda: credentials[-1],
            "validator": validator,
            "runtime_directory": directory,
            **listener_options,
        }
        listener = Listener(backend_socket=backend, registry=registry, limits=limits, observer=events, **options)
        await server.start()
        try:
            port = await listener.start("127.0.0.1", 0)
            yield Bed(ca, port, registry, listener, events, validator, directory, backend, seen, credentials, written)
        finally:
            await listener.stop()
            await server.stop()


def connected_sessions() -> tuple[TlsSession, TlsSession]:
    """Return the server's and the client's end of a TLS connection in memory, after the handshake."""
    key = new_key()
    leaf = make_certificate(key, oid=EVIDENCE_OID, evidence=b"x", now=datetime.now(UTC))
    server = TlsSession(server_context(ServerCredentials((leaf,), key), client_authority=None), is_server=True)
    client = TlsSession(client_context(lambda *_rest: True), is_server=False, server_name=b"a+b/c=")
    client.handshake()
    server.feed(client.outgoing())
    server.handshake()
    client.feed(server.outgoing())
    client.handshake()
    server.feed(client.outgoing())
    server.handshake()
    return server, client


async def settled(condition: Any, *, seconds: float = 900) -> None:
    """Wait until ``condition()`` is true; fails after a timeout."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for belongs to the code under test
            await asyncio.sleep(0.01)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Split ``data`` into pieces of at most ``size`` bytes."""
    return (data[start : start + size] for start in range(0, len(data), size))
