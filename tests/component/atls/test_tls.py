# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What TLS itself must hold: versions, resumption, exporters, sizes; with peers that are not ours."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import (
    EVIDENCE_OID,
    AttestedServer,
    decode_authorities,
    decode_nonce,
    make_certificate,
    new_key,
    nonce_authority,
    spki_sha256,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect, open_connection
from ansible_collections.attested.kubernetes.tests.support.atls import (
    CLUSTER_ID,
    Bed,
    HashIssuer,
    HashValidator,
    call,
    honest_evidence,
    running_bed,
    settled,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from OpenSSL import SSL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric import ec

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    """A relay with its service."""
    async with running_bed() as running:
        yield running


class RawPeer:
    """A blocking TLS client of pyOpenSSL, for what our own client would never do."""

    def __init__(
        self,
        port: int,
        context: SSL.Context | None = None,
        *,
        session: SSL.Session | None = None,
        extra: x509.Certificate | None = None,
    ) -> None:
        self.key = new_key()
        self.verified = 0
        self.chain: list[x509.Certificate] = []
        self.evidence: bytes | None = None
        self.context = context or SSL.Context(SSL.TLS_CLIENT_METHOD)
        if context is None:
            self.context.set_alpn_protos([b"h2"])
        if extra is not None:
            self.context.add_extra_chain_cert(extra)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.socket.settimeout(None)
        self.tls = SSL.Connection(self.context, self.socket)
        self.tls.set_verify(SSL.VERIFY_PEER, self._verify)
        if session is not None:
            self.tls.set_session(session)
        self.tls.set_connect_state()

    def _verify(self, connection: SSL.Connection, _cert: Any, _error: int, depth: int, _ok: int) -> bool:
        if depth == 0 and not self.verified:
            self.verified += 1
            nonce = decode_authorities(connection.get_client_ca_list(as_cryptography=True))
            evidence = self.evidence or honest_evidence(spki_sha256(self.key.public_key()), nonce)
            self._show(
                connection, make_certificate(self.key, oid=EVIDENCE_OID, evidence=evidence, now=datetime.now(UTC))
            )
        return True

    def _show(self, connection: SSL.Connection, certificate: x509.Certificate) -> None:
        connection.use_certificate(certificate)
        connection.use_privatekey(self.key)

    def read(self) -> bytes:
        """Return what the server says first, or nothing once it has closed."""
        self.tls.do_handshake()
        try:
            return self.tls.recv(1 << 16)
        except (SSL.Error, OSError):
            return b""

    def close(self) -> None:
        self.socket.close()


async def in_thread(work: Any) -> Any:
    """Run blocking work beside the relay."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


# ---- resumption


async def test_resumption_never_skips_attestation(bed: Bed) -> None:
    """A client that offers its old session, while the old connection is alive, is attested like a stranger."""
    first = RawPeer(bed.port)
    assert await in_thread(first.read)
    session = first.tls.get_session()
    assert session is not None
    second = RawPeer(bed.port, first.context, session=session)
    assert await in_thread(second.read)
    assert (first.verified, second.verified) == (1, 1)
    assert len(bed.validator.calls) == 2
    assert len(set(bed.validator.calls)) == 2
    first.close()
    second.close()


async def test_a_client_that_resumes_with_bad_evidence_is_rejected(bed: Bed) -> None:
    """What was accepted once is worth nothing on the next connection."""
    first = RawPeer(bed.port)
    assert await in_thread(first.read)
    second = RawPeer(bed.port, first.context, session=first.tls.get_session())
    second.evidence = b"x"
    await in_thread(second.read)
    await settled(lambda: bed.events.reasons("peer_rejected") == ["EVIDENCE_MISSING"])
    first.close()
    second.close()


async def test_the_test_of_resumption_would_notice_one() -> None:
    """A server that keeps one context for all, as TLS servers do, resumes under the same client: no second look."""
    server = ResumingServer()
    first = RawPeer(server.port)
    assert await in_thread(first.read)
    second = RawPeer(server.port, first.context, session=first.tls.get_session())
    assert await in_thread(second.read)
    assert (first.verified, second.verified) == (1, 0)
    first.close()
    second.close()
    server.close()


class ResumingServer:
    """Two connections served by one context of ordinary make."""

    def __init__(self) -> None:
        self.context = SSL.Context(SSL.TLS_SERVER_METHOD)
        key = new_key()
        self.context.use_privatekey(key)
        self.context.use_certificate(make_certificate(key, oid=EVIDENCE_OID, evidence=b"x", now=datetime.now(UTC)))
        self.context.set_session_id(b"shared")
        self.context.add_client_ca(nonce_authority(bytes(32), now=datetime.now(UTC)))
        self.context.set_verify(SSL.VERIFY_PEER, lambda *_rest: True)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        self.held = []
        for _unused in range(2):
            connection, _unused = self.listening.accept()
            tls = SSL.Connection(self.context, connection)
            tls.set_accept_state()
            tls.do_handshake()
            tls.sendall(b"hello")
            self.held.append(tls)

    def close(self) -> None:
        self.listening.close()


@needs_openssl
async def test_openssl_cannot_resume_either(bed: Bed, tmp_path: Path) -> None:
    """OpenSSL sends a ticket whatever it is told; it opens nothing."""
    files = client_files(bed)
    stored = tmp_path / "session.pem"
    await s_client(bed, "-alpn", "h2", "-sess_out", str(stored), *files, until=lambda _unused: stored.exists())
    said = await s_client(bed, "-alpn", "h2", "-sess_in", str(stored), *files)
    assert "New, TLSv1.3" in said
    assert "Reused" not in said
    await settled(lambda: len(bed.validator.calls) == 2)


# ---- versions and protocols


def client_files(bed: Bed) -> tuple[str, ...]:
    """Return the options for a client certificate without evidence."""
    key = new_key()
    certificate = bed.directory / "client.pem"
    certificate.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + make_certificate(key, oid=EVIDENCE_OID, evidence=b"none", now=datetime.now(UTC)).public_bytes(
            serialization.Encoding.PEM
        )
    )
    return ("-cert", str(certificate), "-key", str(certificate))


async def s_client(bed: Bed, *options: str, until: Callable[[str], bool] | None = None) -> str:
    """Return what openssl s_client says of the relay until it ends, or ``until`` is true of it (the summary is out)."""
    enough = until or (lambda said: "Verify return code" in said)
    process = await asyncio.create_subprocess_exec(
        "openssl",
        "s_client",
        "-connect",
        bed.endpoint,
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said = b""
    try:
        async with asyncio.timeout(20):
            while not enough(said.decode("utf-8", "replace")) and not process.stdout.at_eof():
                with suppress(TimeoutError):
                    said += await asyncio.wait_for(process.stdout.read(1 << 16), 0.1)
            process.stdin.close()
            rest, _unused = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return (said + rest).decode("utf-8", "replace")


@needs_openssl
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(("-tls1_2",), "protocol version", id="TLS 1.2 is refused by an alert"),
        pytest.param(("-tls1_3", "-alpn", "h2"), "certificate required", id="no certificate is refused by an alert"),
    ],
)
async def test_openssl_is_told_what_is_wrong(bed: Bed, options: tuple[str, ...], expected: str) -> None:
    """And the relay lives on."""
    assert expected in await s_client(bed, *options, until=lambda said: expected in said)
    assert bed.events.reasons("connection_failed") == ["TLS_HANDSHAKE_FAILED"]
    assert await bed.say()


@needs_openssl
async def test_openssl_sees_the_join_ca_and_one_nonce(bed: Bed) -> None:
    """The wire as an independent peer reads it: TLS 1.3, the service's name, exactly one acceptable CA."""
    said = await s_client(bed, "-alpn", "h2", *client_files(bed))
    assert "TLSv1.3" in said
    assert "ALPN protocol: h2" in said
    lines = said.splitlines()
    at = lines.index("Acceptable client certificate CA names")
    assert len(decode_nonce(lines[at + 1].removeprefix("CN = ").strip('"'))) == 32
    assert not lines[at + 2].startswith("CN = ")


@needs_openssl
@pytest.mark.parametrize(
    "alpn", [pytest.param(("-alpn", "http/1.1"), id="only HTTP/1.1"), pytest.param((), id="no protocol at all")]
)
async def test_a_peer_without_http2_is_not_served(bed: Bed, alpn: tuple[str, ...]) -> None:
    """Nothing of it goes further."""
    await s_client(bed, *alpn, *client_files(bed), until=lambda _unused: bool(bed.events.reasons("connection_failed")))
    assert bed.events.reasons("connection_failed") == ["TLS_HANDSHAKE_FAILED"]
    assert bed.validator.calls == []


@needs_openssl
async def test_our_client_refuses_a_server_of_tls_1_2(bed: Bed, tmp_path: Path) -> None:
    """Before any evidence is made."""
    credentials = bed.credentials[0]
    files = write_server(tmp_path, credentials.chain[0], credentials.key)
    async with s_server(files, "-tls1_2", "-alpn", "h2") as port:
        issuer = HashIssuer()
        with pytest.raises(TransportError, match="TLS_HANDSHAKE_FAILED"):
            async with connect(f"127.0.0.1:{port}", pins=bed.pins, cluster_id=CLUSTER_ID, issuer=issuer):
                pass
        assert issuer.calls == []


def write_server(directory: Path, leaf: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> tuple[str, str]:
    """Write certificate and key for openssl."""
    certificate, private = directory / "server.pem", directory / "server.key"
    certificate.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(certificate), str(private)


@asynccontextmanager
async def s_server(files: tuple[str, str], *options: str) -> AsyncIterator[int]:
    """Run openssl s_server on a port that the kernel chooses."""
    process = await asyncio.create_subprocess_exec(
        "openssl",
        "s_server",
        "-accept",
        "127.0.0.1:0",
        "-cert",
        files[0],
        "-key",
        files[1],
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(10):
            while not (line := await process.stdout.readline()).startswith(b"ACCEPT"):
                assert line, "openssl s_server ended"
        yield int(line.rsplit(b":", 1)[1])
    finally:
        process.kill()
        await process.wait()


# ---- certificates


async def test_a_second_certificate_is_refused(bed: Bed) -> None:
    """Good evidence with another certificate behind it: which one was judged must never be a question."""
    second = make_certificate(new_key(), oid=EVIDENCE_OID, evidence=b"second", now=datetime.now(UTC))
    peer = RawPeer(bed.port, extra=second)
    await in_thread(peer.read)
    await settled(lambda: bed.events.reasons("peer_rejected") == ["PEER_CERTIFICATE_MALFORMED"])
    assert bed.validator.calls == []
    peer.close()


@pytest.mark.parametrize("size", [99_000, 200_000, 1_000_000])
async def test_an_oversized_certificate_ends_the_handshake(bed: Bed, size: int) -> None:
    """Bounded before it is parsed, whatever its size; good machines pass afterwards."""
    peer = RawPeer(bed.port)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "big")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(peer.key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC))
        .not_valid_after(datetime.now(UTC) + timedelta(hours=1))
        .add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier(EVIDENCE_OID), bytes(size)), critical=False)
    )
    big = builder.sign(peer.key, hashes.SHA256())
    peer._verify = lambda connection, *_rest: peer._show(connection, big) or True  # type: ignore[method-assign]
    peer.tls.set_verify(SSL.VERIFY_PEER, peer._verify)
    assert await in_thread(lambda: swallow(peer)) == b""
    assert bed.events.reasons("connection_failed") == ["TLS_HANDSHAKE_FAILED"]
    assert bed.validator.calls == []
    assert await bed.say()


def swallow(peer: RawPeer) -> bytes:
    """Return the server's words, or nothing if the connection broke on the way."""
    try:
        return peer.read()
    except (SSL.Error, OSError):
        return b""
    finally:
        peer.close()


# ---- the channel


async def test_a_proxy_that_terminates_tls_cannot_keep_the_binding(bed: Bed) -> None:
    """Even one with stolen service credentials and evidence of its own ends on another exporter and another key."""
    async with (
        running_bed(server_credentials=lambda: bed.credentials[0]) as proxy,
        connect(proxy.endpoint, pins=bed.pins, cluster_id=CLUSTER_ID, issuer=HashIssuer()) as victim,
    ):
        assert await call(victim.channel(), b"to the proxy")
        await bed.say(b"passed on")
        outer, inner = proxy.seen[0][0], bed.seen[0][0]
        assert victim.exporter == outer.exporter
        assert victim.exporter != inner.exporter
        assert victim.spki_sha256 != inner.spki_sha256
        assert outer.peer_nonce != inner.peer_nonce


async def test_evidence_relayed_through_another_connection_is_refused(bed: Bed) -> None:
    """A victim's honest evidence names the victim's key, which the relaying attacker does not have."""
    loot: list[bytes] = []

    def steal(user_data: bytes, nonce: bytes) -> bytes:
        victim = HashIssuer()
        loot.append(victim.issue(user_data=bytes(32), nonce=nonce))
        del user_data
        return loot[-1]

    async with connect(bed.endpoint, pins=bed.pins, cluster_id=CLUSTER_ID, issuer=HashIssuer(steal)):
        assert bed.events.reasons("peer_rejected") == ["EVIDENCE_MISSING"]
    assert loot


# ---- the other direction: the server attests itself


async def test_a_server_can_attest_itself_over_the_clients_nonce() -> None:
    """As init and recovery need it: the nonce goes out as server name, the evidence comes in the certificate."""
    issuer, validator = HashIssuer(), HashValidator()
    nonce = bytes(range(100, 132))
    async with running_bed(server_credentials=None, issuer=issuer) as bed:
        check = AttestedServer(validator, nonce, SystemClock())
        async with open_connection(bed.endpoint, check=check, issuer=HashIssuer()) as connection:
            assert await call(connection.channel())
    assert [nonce] == [asked for _unused, asked in issuer.calls]
    assert len(validator.calls) == 1


async def test_one_way_attestation_asks_the_client_for_nothing() -> None:
    """Only the server attests; the client shows no certificate and is served."""
    async with running_bed(server_credentials=None, issuer=HashIssuer(), validator=None) as bed:
        check = AttestedServer(HashValidator(), bytes(32), SystemClock())
        async with open_connection(bed.endpoint, check=check, issuer=None) as connection:
            assert await call(connection.channel())
        claims = bed.seen[0][0]
    assert (claims.evidence, claims.spki_sha256, claims.peer_nonce) == (b"", b"", b"")
    assert len(claims.exporter) == 32


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(lambda user, _nonce: honest_evidence(user, bytes(32)), id="over another nonce"),
        pytest.param(lambda _user, nonce: honest_evidence(bytes(32), nonce), id="for another key"),
    ],
)
async def test_a_server_with_bad_evidence_gets_none_of_ours(forge: Any) -> None:
    """The client judges first."""
    ours = HashIssuer()
    async with running_bed(server_credentials=None, issuer=HashIssuer(forge)) as bed:
        check = AttestedServer(HashValidator(), bytes(range(32)), SystemClock())
        with pytest.raises(AttestedError, match="EVIDENCE_MISSING"):
            async with open_connection(bed.endpoint, check=check, issuer=ours):
                pass
    assert ours.calls == []


async def test_an_attesting_server_makes_no_evidence_without_a_nonce() -> None:
    """A scanner that sends a host name, or none, does not cost a quote."""
    issuer = HashIssuer()
    async with running_bed(server_credentials=None, issuer=issuer) as bed:
        with pytest.raises(AttestedError):
            await bed.say()
        assert bed.events.reasons("connection_failed") == ["NONCE_MALFORMED"]
    assert issuer.calls == []
