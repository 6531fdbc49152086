# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A load generator for the join service: the whole exchange of a node with minimal CPU time.

Load generator and services share the processors of a benchmark, and the real client (asyncio, a gRPC channel, all
checks of the answer) uses more CPU than both services. This client sends the same bytes over one blocking socket: its
own TLS 1.3 handshake with fresh evidence, HTTP/2 by hand, challenge, bound quote, ticket. It does not verify the
service and opens no ticket; the answer must be a ticket.
"""

from __future__ import annotations

import base64
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    BindingContext,
    Challenge,
    ChallengeRequest,
    answer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import (
    Attester,
    DoorkeeperIssuer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import (
    BINDING_METADATA,
    CHALLENGE,
    ISSUE_JOIN_TICKET,
    kubelet_request,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import (
    NONCE_BYTES,
    decode_authorities,
    make_certificate,
    new_key,
    spki_sha256,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.session import client_context
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import logs_of
from ansible_collections.attested.kubernetes.tests.support.service_bed import GOOD_BOOT
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from OpenSSL import SSL

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

_EXPORTER = (b"EXPORTER-Channel-Binding", 32)
_SECONDS = 900
_RECEIVE = 1 << 16
_PATIENCE = struct.pack("ll", _SECONDS, 0)
"""A struct timeval: timeout of a blocking read, so that a silent service ends the benchmark."""

# HTTP/2, RFC 9113
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">BHBBI")
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_ACK = END_STREAM = 1
_END_HEADERS = 4
_LARGEST_FRAME = 1 << 14
_WINDOW = 65_535


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one HTTP/2 frame."""
    return _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header field without index and without compression (RFC 7541, 6.2.2)."""
    return b"\x00" + _text(name) + _text(value)


def _text(data: bytes) -> bytes:
    if len(data) < 127:
        return bytes((len(data),)) + data
    rest, length = len(data) - 127, bytearray(b"\x7f")
    while rest >= 128:
        length.append(rest % 128 + 128)
        rest //= 128
    return bytes((*length, rest)) + data


@dataclass(slots=True)
class LightMachine:
    """A machine of a service bed that asks with little CPU; its logs, keys and requests do not change.

    ``source`` is its address, one of 127.0.0.0/8, else the system chooses.
    """

    name: str
    bed: ServiceBed
    tpm: SoftTpm
    logs: EventLogs
    kubelet_key: SecretBytes
    source: str = ""
    attester: Attester = field(init=False)
    request: bytes = field(init=False)
    certificate: _Certificate = field(init=False)
    _keys: bytes = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the data that is the same for all tickets."""
        self.attester = Attester(tpm=self.tpm, ek=self.tpm.ek, ak=self.tpm.ak)
        self.certificate = _Certificate(self.attester)
        self._keys = ChallengeRequest(ek_public=self.tpm.ek.public, ak_public=self.tpm.ak.public).to_bytes()
        message: Any = message_class("join.IssueJoinTicketRequest")(
            certificate_request=kubelet_request(self.kubelet_key, self.name), event_logs=self.logs.to_bytes()
        )
        self.request = message.SerializeToString()

    @classmethod
    def of(cls, machine: Machine) -> LightMachine:
        """Return ``machine`` as a client that asks with little CPU."""
        return cls(machine.name, machine.bed, machine.tpm, machine.logs(), machine.store.kubelet_key())

    @classmethod
    def new(cls, name: str, bed: ServiceBed, *, source: str = "") -> LightMachine:
        """Return a new machine of the good boot, without files."""
        boot = boots.load(GOOD_BOOT)
        key = new_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return cls(name, bed, SoftTpm(boot.pcrs), logs_of(boot, nodelock=b""), SecretBytes(key), source)

    def ask(self) -> bytes:
        """Return the answer of one exchange over a new connection; raises ConnectionError for a refusal."""
        connection = LightConnection(self.bed.port, self.certificate, self.source)
        try:
            return self._converse(connection)
        finally:
            connection.close()

    def _converse(self, connection: LightConnection) -> bytes:
        one = self.attester
        challenge = Challenge.parse(connection.call(CHALLENGE, self._keys))
        context = BindingContext(
            purpose=Purpose.JOIN,
            cluster_id=self.bed.bundle.cluster_id,
            request=self.request,
            exporter=connection.exporter,
            spki_sha256=self.certificate.spki_sha256,
        )
        given = answer(one.tpm, challenge, context, ek=one.ek, ak=one.ak, logs=self.logs)
        binding = base64.b64encode(given.bound.to_bytes())
        return connection.call(ISSUE_JOIN_TICKET, self.request, literal(BINDING_METADATA.encode(), binding))


class _Certificate:
    """The machine's TLS certificate: created once, then signed again with each new evidence."""

    def __init__(self, attester: Attester) -> None:
        """Create a key and a certificate with evidence for a nonce of zeros."""
        self._issuer, self.private_key = DoorkeeperIssuer(attester), new_key()
        self.spki_sha256 = spki_sha256(self.private_key.public_key())
        self._evidence = self._issuer.issue(user_data=self.spki_sha256, nonce=bytes(NONCE_BYTES))
        made = make_certificate(self.private_key, oid=self._issuer.oid, evidence=self._evidence, now=datetime.now(UTC))
        self._signed_part, self._whole = made.tbs_certificate_bytes, made.public_bytes(Encoding.DER)
        self._algorithm = self._whole[4 + len(self._signed_part) :][: 2 + self._whole[5 + len(self._signed_part)]]

    def fresh(self, nonce: bytes) -> x509.Certificate:
        """Return the certificate with evidence for ``nonce``."""
        evidence = self._issuer.issue(user_data=self.spki_sha256, nonce=nonce)
        if len(evidence) != len(self._evidence):
            raise ValueError("expected evidence of one length")
        signed_part = self._signed_part.replace(self._evidence, evidence)
        signature = self.private_key.sign(signed_part, ec.ECDSA(hashes.SHA256()))
        rest = signed_part + self._algorithm + bytes((3, len(signature) + 1, 0)) + signature
        return x509.load_der_x509_certificate(b"\x30\x82" + len(rest).to_bytes(2, "big") + rest)


class LightConnection:
    """One attested connection with sequential unary calls."""

    def __init__(self, port: int, certificate: _Certificate, source: str) -> None:
        """Connect to 127.0.0.1 from ``source``, run the handshake with fresh evidence, and start HTTP/2."""
        self._certificate = certificate
        self._shown = False
        self._stream = 1
        self._buffer = b""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS, source_address=(source, 0))
        self._socket.settimeout(None)  # OpenSSL reads the descriptor itself and needs it blocking
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = SSL.Connection(_CONTEXT, self._socket)
        self._tls.set_app_data(self)
        self._tls.set_connect_state()
        self._tls.do_handshake()
        self.exporter = self._tls.export_keying_material(*_EXPORTER)
        self._tls.sendall(_PREFACE + frame(_SETTINGS, 0, 0))

    def call(self, path: str, message: bytes, headers: bytes = b"") -> bytes:
        """Return the response message to ``message``."""
        stream, body = self._stream, b"\x00" + len(message).to_bytes(4, "big") + message
        self._stream += 2
        if max(len(headers), len(body)) > min(_LARGEST_FRAME, _WINDOW) - 1024:
            raise ValueError("expected a message of one frame")
        # POST and http of the static table (RFC 7541, appendix A), then the headers of gRPC
        fields = b"\x83\x86" + literal(b":path", path.encode()) + literal(b":authority", b"attested")
        fields += literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers") + headers
        head = frame(_HEADERS, _END_HEADERS, stream, fields)
        self._tls.sendall(head + frame(_DATA, END_STREAM, stream, body))
        return self._answer(stream)

    def close(self) -> None:
        """Close the connection."""
        with suppress(SSL.Error):
            self._tls.shutdown()
        self._socket.close()

    def _answer(self, stream: int) -> bytes:
        answer = b""
        while True:
            kind, flags, on, payload = self._frame()
            if kind in {_SETTINGS, _PING} and not flags & _ACK:
                self._tls.sendall(frame(kind, _ACK, 0, payload if kind == _PING else b""))
            elif kind in {_RESET, _GOAWAY}:
                raise ConnectionError("expected an answer, the call was broken off")
            elif on == stream and kind == _DATA:
                answer += payload
            if on == stream and flags & END_STREAM and kind in {_DATA, _HEADERS}:
                break
        if len(answer) <= 5:
            raise ConnectionError("expected an answer, got a refusal")
        return answer[5:]

    def _frame(self) -> tuple[int, int, int, bytes]:
        high, low, kind, flags, stream = _HEAD.unpack(self._exactly(_HEAD.size))
        return kind, flags, stream, self._exactly((high << 16) + low)

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += self._tls.recv(_RECEIVE)
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def show(self) -> None:
        """Send fresh evidence, once."""
        if not self._shown:
            nonce = decode_authorities(self._tls.get_client_ca_list(as_cryptography=True))
            self._tls.use_certificate(self._certificate.fresh(nonce))
            self._tls.use_privatekey(self._certificate.private_key)
            self._shown = True


def _show(connection: SSL.Connection, *_finding: object) -> bool:
    """Send evidence; OpenSSL calls this for each of its findings about the server."""
    connection.get_app_data().show()
    return True


def _context() -> SSL.Context:
    """Return the one context of all connections, with the settings of the real client."""
    context = client_context(lambda *_leaf: True)
    context.set_verify(SSL.VERIFY_PEER, _show)
    return context


_CONTEXT = _context()
