# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for a node of Constellation, written from the facts of its wire form; no program of theirs runs here.

It shows that a client keeps to those facts, and not that one of their nodes was ever opened by it. None of our code
takes part, neither transport nor messages nor documents: pyOpenSSL, grpcio and an RSA key in memory. The facts:

* recovery, TCP 9999: attested TLS, the server proves itself over the nonce in the server name (base64 of 32 bytes);
  `/recoverproto.API/Recover` with field 3 the URI of the master secret and field 4 that of the storage; one call, then
  it stops; the answer is empty.
* join service, TCP 30090: attested TLS, the client proves itself over the nonce that is the common name of the one
  acceptable CA; `/join.API/IssueRejoinTicket`, field 1 the disk, answer 1 the disk's key and 2 the measurement secret.
* verification, TCP 30081, plain text: `/verify.API/GetAttestation`, field 2 the nonce, answer field 1 the document.
* certificate: P-256, self-signed, one extension that is not critical, under the object id of the variant, raw JSON.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import select
import socket
import struct
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from OpenSSL import SSL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OID = "1.3.9900.5.1"
RECOVER = "/recoverproto.API/Recover"
REJOIN = "/join.API/IssueRejoinTicket"
VERIFY = "/verify.API/GetAttestation"
RH_OWNER = bytes.fromhex("40000001")
SHA256, SHA384 = 11, 12
_REGISTERS = 24


def extra_data(user_data: bytes, nonce: bytes) -> bytes:
    """Return the qualifying data of a quote: hashed twice, also without instance information."""
    return hashlib.sha256(hashlib.sha256(user_data + nonce).digest()).digest()


@dataclass
class Machine:
    """A TPM for the variant ``qemu-vtpm``: an RSA key, and registers in one or two banks."""

    pcrs: dict[int, bytes] = field(default_factory=lambda: {index: bytes(32) for index in range(_REGISTERS)})
    banks: tuple[int, ...] = (SHA256,)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    @property
    def public(self) -> bytes:
        """TPMT_PUBLIC of the key: restricted, signing, fixed to the TPM, RSASSA with SHA-256; 280 bytes."""
        head = struct.pack(">HHIHHHHHIH", 1, SHA256, 0x00050072, 0, 0x10, 0x14, SHA256, 2048, 0, 256)
        area = head + self.key.public_key().public_numbers().n.to_bytes(256)
        assert len(area) == 280
        return area

    @property
    def name(self) -> bytes:
        """The name of the key."""
        return struct.pack(">H", SHA256) + hashlib.sha256(self.public).digest()

    def quote(self, data: bytes, bank: int) -> tuple[bytes, bytes, dict[int, bytes]]:
        """Return TPMS_ATTEST, TPMT_SIGNATURE and the values of one bank."""
        values = {index: value if bank == SHA256 else value + bytes(16) for index, value in self.pcrs.items()}
        signer = struct.pack(">H", SHA256) + hashlib.sha256(RH_OWNER + self.name).digest()
        digest = hashlib.sha256(b"".join(values[index] for index in range(_REGISTERS))).digest()
        attest = (
            bytes.fromhex("ff5443478018")
            + struct.pack(">H", len(signer)) + signer
            + struct.pack(">H", len(data)) + data
            + struct.pack(">QIIBQ", 1000, 3, 0, 1, 7)
            + struct.pack(">IHB", 1, bank, 3) + b"\xff\xff\xff"
            + struct.pack(">H", 32) + digest
        )  # fmt: skip
        signature = self.key.sign(attest, padding.PKCS1v15(), hashes.SHA256())
        return attest, struct.pack(">HHH", 0x14, SHA256, 256) + signature, values

    def document(self, user_data: bytes, nonce: bytes) -> bytes:
        """Return the document in the form of Constellation's Go code."""
        quotes = []
        for bank in self.banks:
            attest, signature, values = self.quote(extra_data(user_data, nonce), bank)
            shown = {str(index): _b64(value) for index, value in values.items()}
            pcrs = {"hash": bank, "pcrs": shown}
            quotes.append({"quote": _b64(attest), "raw_sig": _b64(signature), "pcrs": pcrs})
        inner = {"ak_pub": _b64(self.public), "quotes": quotes, "TeeAttestation": None}
        return json.dumps({"Attestation": inner, "InstanceInfo": None, "UserData": _b64(user_data)}).encode()


def certificate(key: ec.EllipticCurvePrivateKey, evidence: bytes | None, *, oid: str = OID) -> x509.Certificate:
    """Return a certificate in Constellation's form, valid for two hours before and after now."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Constellation")])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=2)).not_valid_after(now + timedelta(hours=2))
    )  # fmt: skip
    if evidence is not None:
        extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), evidence)
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256())


def spki(certificate_or_key: Any) -> bytes:
    """Return the SHA-256 of a certificate's key (SubjectPublicKeyInfo)."""
    key = certificate_or_key.public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).digest()


@dataclass
class StandIn:
    """A running node: address, received requests, and verdict about the client's evidence."""

    machine: Machine
    port: int = 0
    told: list[tuple[str, dict[int, bytes]]] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    clients: list[dict[str, Any]] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        """The address of the node."""
        return f"127.0.0.1:{self.port}"


@contextmanager
def verification_service(machine: Machine) -> Iterator[StandIn]:
    """Serve documents in plain text, like Constellation's DaemonSet."""
    node = StandIn(machine)

    def attest(request: bytes) -> bytes:
        return _field(1, machine.document(b"VerifyService", fields_of(request)[2]))

    server = _server({VERIFY: attest}, node)
    node.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield node
    server.stop(None).wait()


@contextmanager
def recovery_server(
    machine: Machine,
    *,
    forge: Callable[[bytes, bytes], bytes] | None = None,
    oid: str = OID,
    asks: int = 1,
) -> Iterator[StandIn]:
    """Wait for a key on an attested TLS port; after ``asks`` calls the port is closed.

    ``forge`` returns another document from user data and nonce.
    """
    node = StandIn(machine)
    stopped = threading.Event()

    def recover(_request: bytes) -> bytes:
        if len(node.told) >= asks:
            stopped.set()
        return b""

    def context_for(connection: SSL.Connection) -> SSL.Context:
        shown = connection.get_servername() or b""
        node.names.append(shown)
        nonce = base64.b64decode(shown, validate=True)
        key = ec.generate_private_key(ec.SECP256R1())
        document = (forge or machine.document)(spki(key), nonce)
        return _context(key, certificate(key, document, oid=oid))

    with _tls_front(node, {RECOVER: recover}, context_for, stopped=stopped):
        yield node


@contextmanager
def join_service(answer: Callable[[str], bytes], *, expected: dict[int, bytes]) -> Iterator[StandIn]:
    """Require evidence of the client, verify it, and answer rejoin requests by disk id."""
    node = StandIn(Machine())
    nonce = secrets.token_bytes(32)

    def rejoin(request: bytes) -> bytes:
        return answer(fields_of(request)[1].decode())

    def context_for(connection: SSL.Connection) -> SSL.Context:
        node.names.append(connection.get_servername() or b"")
        key = ec.generate_private_key(ec.SECP256R1())
        context = _context(key, certificate(key, None))
        _demand_client(context, nonce)
        return context

    def judge(connection: SSL.Connection) -> bool:
        shown = connection.get_peer_certificate(as_cryptography=True)
        assert shown is not None
        verdict = _client_evidence(shown, nonce)
        node.clients.append(verdict)
        return all(verdict["pcrs"].get(index) == value for index, value in expected.items())

    with _tls_front(node, {REJOIN: rejoin}, context_for, judge=judge, nonce=nonce):
        yield node


def fields_of(message: bytes) -> dict[int, bytes]:
    """Return the fields of a message that has only byte strings and texts."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        assert tag & 7 == 2
        size, at = _varint(message, at)
        found[tag >> 3], at = message[at : at + size], at + size
    assert at == len(message)
    return found


def ticket(disk_key: bytes, measurement_secret: bytes) -> bytes:
    """Return a rejoin ticket."""
    return _field(1, disk_key) + _field(2, measurement_secret)


# ---- transport


def _server(methods: dict[str, Callable[[bytes], bytes]], node: StandIn) -> grpc.Server:
    class Calls(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
        def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            name = call.method
            if name not in methods:
                return None

            def serve(request: bytes, _context: grpc.ServicerContext) -> bytes:
                node.told.append((name, fields_of(request)))
                return methods[name](request)

            return grpc.unary_unary_rpc_method_handler(serve)

    return grpc.server(ThreadPoolExecutor(4), handlers=[Calls()])


@contextmanager
def _tls_front(
    node: StandIn,
    methods: dict[str, Callable[[bytes], bytes]],
    context_for: Callable[[SSL.Connection], SSL.Context],
    *,
    judge: Callable[[SSL.Connection], bool] | None = None,
    nonce: bytes | None = None,
    stopped: threading.Event | None = None,
) -> Iterator[None]:
    """Terminate TLS with one context per connection and forward its bytes to a gRPC server on a unix socket."""
    with tempfile.TemporaryDirectory(prefix="cn-") as folder, socket.create_server(("127.0.0.1", 0)) as door:
        path = str(Path(folder) / "grpc")
        server = _server(methods, node)
        server.add_insecure_port(f"unix:{path}")
        server.start()
        node.port = door.getsockname()[1]
        ended = stopped or threading.Event()

        def accept() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    if select.select([door], [], [], 0.05)[0]:
                        peer = door.accept()[0]
                        threading.Thread(target=handle, args=(peer,), daemon=True).start()
            door.close()

        def handle(peer: socket.socket) -> None:
            with suppress(SSL.Error, OSError), peer:
                context = _hello_context(context_for, nonce)
                connection = SSL.Connection(context, peer)
                connection.set_accept_state()
                connection.do_handshake()
                if judge is None or judge(connection):
                    _carry(connection, peer, path)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield
        ended.set()
        thread.join(timeout=10)
        server.stop(None).wait()


def _hello_context(context_for: Callable[[SSL.Connection], SSL.Context], nonce: bytes | None) -> SSL.Context:
    """Return the context that reads the server name and sets the matching context."""
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_alpn_select_callback(_alpn)
    if nonce is not None:
        _demand_client(context, nonce)
    context.set_tlsext_servername_callback(lambda connection: connection.set_context(context_for(connection)))
    return context


def _context(key: ec.EllipticCurvePrivateKey, leaf: x509.Certificate) -> SSL.Context:
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.use_privatekey(key)
    context.use_certificate(leaf)
    context.set_alpn_select_callback(_alpn)
    return context


def _alpn(_connection: SSL.Connection, offered: list[bytes]) -> Any:
    """Select like Go: in the order of the server's list."""
    return next((one for one in (b"http/1.1", b"h2") if one in offered), SSL.NO_OVERLAPPING_PROTOCOLS)


def _demand_client(context: SSL.Context, nonce: bytes) -> None:
    """Request any certificate, with a list of acceptable CAs with one name: the nonce."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _b64(nonce))])
    now = datetime.now(UTC)
    authority = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(hours=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    context.add_client_ca(authority)
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, lambda *_finding: True)


def _client_evidence(shown: x509.Certificate, nonce: bytes) -> dict[str, Any]:
    """Verify a client's certificate by Constellation's rules; assertion errors fail the test."""
    shown.verify_directly_issued_by(shown)
    now = datetime.now(UTC)
    assert shown.not_valid_before_utc <= now <= shown.not_valid_after_utc
    (extension,) = [one for one in shown.extensions if one.oid.dotted_string == OID]
    assert not extension.critical
    document = json.loads(extension.value.value)
    user_data = base64.b64decode(document["UserData"])
    assert user_data == spki(shown)
    (quote,) = document["Attestation"]["quotes"]
    attest = base64.b64decode(quote["quote"])
    assert attest[44:76] == extra_data(user_data, nonce)
    pcrs = {int(index): base64.b64decode(value) for index, value in quote["pcrs"]["pcrs"].items()}
    assert attest[-32:] == hashlib.sha256(b"".join(pcrs[index] for index in range(_REGISTERS))).digest()
    return {"pcrs": pcrs, "ak": base64.b64decode(document["Attestation"]["ak_pub"])}


def _carry(connection: SSL.Connection, peer: socket.socket, path: str) -> None:
    with socket.socket(socket.AF_UNIX) as local:
        local.connect(path)
        while True:
            ready = [local, peer] if not connection.pending() else [peer]
            readable = ready if connection.pending() else select.select(ready, [], [], 30)[0]
            if not readable:
                return
            if peer in readable:
                local.sendall(connection.recv(65536))
            if local in readable:
                data = local.recv(65536)
                if not data:
                    connection.shutdown()
                    return
                connection.sendall(data)


# ---- messages


def _field(number: int, data: bytes) -> bytes:
    return _encoded(number << 3 | 2) + _encoded(len(data)) + data


def _encoded(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
