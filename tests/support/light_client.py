# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A load generator for the join service: the whole exchange of a node with as little work of its own as it can.

Load generator and services share the processors of a benchmark, and the real client (asyncio, a gRPC channel, every
check of the answer) costs more CPU than both services. This one speaks the same bytes over one blocking socket: its own
TLS 1.3 handshake with fresh evidence, HTTP/2 by hand, challenge, bound quote, ticket. It trusts the service that it
asks and opens no ticket; what it gets must be one.
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
    make_certificate,
    new_key,
    spki_sha256,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.server_check import decode_authorities
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.session import client_context
from OpenSSL import SSL

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine

_EXPORTER = (b"EXPORTER-Channel-Binding", 32)
_SECONDS = 60
_RECEIVE = 1 << 16

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
    """A machine of a service bed that asks with little CPU; its logs and its certificate request stay the same."""

    machine: Machine
    attester: Attester = field(init=False)
    logs: EventLogs = field(init=False)
    request: bytes = field(init=False)

    def __post_init__(self) -> None:
        """Prepare what does not change from ticket to ticket."""
        tpm = self.machine.tpm
        self.attester = Attester(tpm=tpm, ek=tpm.ek, ak=tpm.ak)
        self.logs = self.machine.logs()
        message: Any = message_class("join.IssueJoinTicketRequest")(
            certificate_request=kubelet_request(self.machine.store.kubelet_key(), self.machine.name),
            event_logs=self.logs.to_bytes(),
        )
        self.request = message.SerializeToString()

    def ask(self) -> bytes:
        """Return the answer of one exchange over a new connection; raises ConnectionError for a refusal."""
        connection = LightConnection(self.machine.bed.port, DoorkeeperIssuer(self.attester))
        try:
            return self._converse(connection)
        finally:
            connection.close()

    def _converse(self, connection: LightConnection) -> bytes:
        one = self.attester
        asked = ChallengeRequest(ek_public=one.ek.public, ak_public=one.ak.public).to_bytes()
        challenge = Challenge.parse(connection.call(CHALLENGE, asked))
        context = BindingContext(
            purpose=Purpose.JOIN,
            cluster_id=self.machine.bed.bundle.cluster_id,
            request=self.request,
            exporter=connection.exporter,
            spki_sha256=connection.spki_sha256,
        )
        given = answer(one.tpm, challenge, context, ek=one.ek, ak=one.ak, logs=self.logs)
        binding = base64.b64encode(given.bound.to_bytes())
        return connection.call(ISSUE_JOIN_TICKET, self.request, literal(BINDING_METADATA.encode(), binding))


class LightConnection:
    """One attested connection with unary calls, one after the other."""

    def __init__(self, port: int, issuer: DoorkeeperIssuer) -> None:
        """Connect to 127.0.0.1, shake hands with fresh evidence, and begin HTTP/2."""
        self._key, self._issuer = new_key(), issuer
        self.spki_sha256 = spki_sha256(self._key.public_key())
        self._shown = False
        self._stream = 1
        self._buffer = b""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
        self._socket.settimeout(None)  # OpenSSL reads the descriptor itself and wants it blocking
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = SSL.Connection(client_context(self._show), self._socket)
        self._tls.set_connect_state()
        self._tls.do_handshake()
        self.exporter = self._tls.export_keying_material(*_EXPORTER)
        self._tls.sendall(_PREFACE + frame(_SETTINGS, 0, 0))

    def call(self, path: str, message: bytes, headers: bytes = b"") -> bytes:
        """Return the message that answers ``message``."""
        stream, body = self._stream, b"\x00" + len(message).to_bytes(4, "big") + message
        self._stream += 2
        if max(len(headers), len(body)) > min(_LARGEST_FRAME, _WINDOW) - 1024:
            raise ValueError("expected a message of one frame")
        # POST and http of the static table (RFC 7541, appendix A), then what gRPC needs
        fields = b"\x83\x86" + literal(b":path", path.encode()) + literal(b":authority", b"attested")
        fields += literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers") + headers
        head = frame(_HEADERS, _END_HEADERS, stream, fields)
        self._tls.sendall(head + frame(_DATA, END_STREAM, stream, body))
        return self._answer(stream)

    def close(self) -> None:
        """Say goodbye and close."""
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

    def _show(self, connection: SSL.Connection, leaf: object) -> bool:
        """Show fresh evidence; called by OpenSSL, for each of its findings about the server."""
        del leaf
        if not self._shown:
            nonce = decode_authorities(connection.get_client_ca_list(as_cryptography=True))
            evidence = self._issuer.issue(user_data=self.spki_sha256, nonce=nonce)
            made = make_certificate(self._key, oid=self._issuer.oid, evidence=evidence, now=datetime.now(UTC))
            connection.use_certificate(made)
            connection.use_privatekey(self._key)
            self._shown = True
        return True
