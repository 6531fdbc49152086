# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One TLS connection in memory: bytes in, bytes out, no socket (pyOpenSSL over memory BIOs).

Two threads must not use it at once. After a failed step `outgoing` still has the alert, which must be sent.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._deps.crypto import ec, serialization, x509
from .._deps.tls import SSL
from ..errors import TransportError
from ..reasons import Reason
from .seams import ALPN_H2

if TYPE_CHECKING:
    from collections.abc import Callable


_CHUNK = 1 << 16
_EXPORTER_LABEL = b"EXPORTER-Channel-Binding"
_EXPORTER_BYTES = 32


class TlsSession:
    """A TLS connection without a socket."""

    def __init__(self, context: SSL.Context, *, is_server: bool, server_name: bytes | None = None) -> None:
        """Start as server or client; ``server_name`` is sent as SNI, at most 255 bytes."""
        self._is_server = is_server
        self._connection = SSL.Connection(context, None)
        if server_name is not None:
            self._connection.set_tlsext_host_name(server_name)
        if is_server:
            self._connection.set_accept_state()
        else:
            self._connection.set_connect_state()

    def feed(self, ciphertext: bytes) -> None:
        """Process bytes from the network."""
        self._connection.bio_write(ciphertext)

    def outgoing(self) -> bytes:
        """Return the bytes to send to the network now."""
        pieces = []
        while True:
            try:
                pieces.append(self._connection.bio_read(_CHUNK))
            except SSL.WantReadError:
                return b"".join(pieces)

    def handshake(self) -> bool:
        """Continue the handshake and return whether it is complete; raises TLS_HANDSHAKE_FAILED."""
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            return False
        except SSL.Error as error:
            raise TransportError(
                f"expected a TLS 1.3 handshake, it ended with: {describe(error)}", reason=Reason.TLS_HANDSHAKE_FAILED
            ) from error
        if self._connection.get_alpn_proto_negotiated() != ALPN_H2:
            raise TransportError(
                "expected a peer that speaks HTTP/2 (ALPN h2), it offered another protocol or none",
                reason=Reason.TLS_HANDSHAKE_FAILED,
            )
        return True

    def decrypt(self) -> bytes | None:
        """Return the bytes that the peer has sent so far, or None after its end; raises TLS_BROKEN."""
        pieces = []
        while True:
            try:
                pieces.append(self._connection.recv(_CHUNK))
            except SSL.WantReadError:
                return b"".join(pieces)
            except SSL.ZeroReturnError:
                return b"".join(pieces) or None
            except SSL.Error as error:
                raise TransportError(
                    f"expected TLS records, the connection ended with: {describe(error)}", reason=Reason.TLS_BROKEN
                ) from error

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return the records that carry ``plaintext``; raises TLS_BROKEN."""
        try:
            self._connection.sendall(plaintext)
        except SSL.Error as error:
            raise TransportError(
                f"expected to send TLS records, the connection ended with: {describe(error)}",
                reason=Reason.TLS_BROKEN,
            ) from error
        return self.outgoing()

    def close(self) -> bytes:
        """Return the closing alert."""
        try:
            self._connection.shutdown()
        except SSL.Error:
            return b""
        return self.outgoing()

    def peer_chain(self) -> tuple[x509.Certificate, ...]:
        """Return the certificates of the peer, leaf first."""
        chain = tuple(self._connection.get_peer_cert_chain(as_cryptography=True) or ())
        leaf = self._connection.get_peer_certificate(as_cryptography=True)
        if leaf is None or not self._is_server:
            return chain
        return (leaf, *chain)  # on a server OpenSSL keeps the leaf out of the chain

    def server_name(self) -> bytes | None:
        """Return the SNI as OpenSSL read it."""
        return self._connection.get_servername()

    def exporter(self) -> bytes:
        """Return the channel binding: RFC 9266 label, empty context, 32 bytes."""
        return self._connection.export_keying_material(_EXPORTER_LABEL, _EXPORTER_BYTES)


def describe(error: SSL.Error) -> str:
    """Return OpenSSL's texts of an error on one line."""
    queue = error.args[0] if error.args and isinstance(error.args[0], list) else []
    return ", ".join(str(entry[-1]) for entry in queue) or str(error) or type(error).__name__


# TLS contexts: TLS 1.3 only, one for each connection.
#
# With a context for each connection no session, ticket, certificate or callback is shared. Tickets and session cache
# are off too, so no resumption can skip attestation.


@dataclass(frozen=True, slots=True)
class ServerCredentials:
    """The certificate chain of a server, leaf first, and the leaf's private key."""

    chain: tuple[x509.Certificate, ...]
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def from_pem(cls, chain: bytes, key: bytes) -> ServerCredentials:
        """Return chain and PKCS 8 key from PEM; raises `TransportError` SERVER_CREDENTIALS_UNUSABLE."""
        try:
            certificates = tuple(x509.load_pem_x509_certificates(chain))
            private = serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError) as error:
            raise _unusable("bytes that are no PEM") from error
        return cls.checked(certificates, private)

    @classmethod
    def checked(cls, chain: tuple[x509.Certificate, ...], key: object) -> ServerCredentials:
        """Return the credentials; raises SERVER_CREDENTIALS_UNUSABLE unless the leaf of ``chain`` is over ``key``."""
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise _unusable("another kind of key")
        if not chain or chain[0].public_key() != key.public_key():
            raise _unusable("a certificate over another key")
        return cls(chain, key)


def server_context(credentials: ServerCredentials, *, client_authority: x509.Certificate | None) -> SSL.Context:
    """Return the context of one accepted connection.

    With ``client_authority`` (whose name is our nonce) a client certificate is required. The callback accepts every
    certificate: it is verified right after the handshake, before any byte is forwarded, so that all rejected peers get
    the same response.
    """
    context = _hardened(SSL.TLS_SERVER_METHOD)
    context.set_session_id(secrets.token_bytes(32))
    context.use_privatekey(credentials.key)
    context.use_certificate(credentials.chain[0])
    for certificate in credentials.chain[1:]:
        context.add_extra_chain_cert(certificate)
    context.set_alpn_select_callback(_select_h2)
    if client_authority is not None:
        context.add_client_ca(client_authority)
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _accept_any)
    return context


def client_context(decide: Callable[[SSL.Connection, x509.Certificate], bool]) -> SSL.Context:
    """Return the context of one connection to a server.

    ``decide`` gets the leaf during the handshake; it must not raise. It may be called more than once for the same leaf,
    because OpenSSL has no trust anchor here and reports several findings.
    """

    def callback(connection: SSL.Connection, certificate: object, _error: int, depth: int, _ok: int) -> bool:
        return depth > 0 or decide(connection, certificate.to_cryptography())  # type: ignore[attr-defined]

    context = _hardened(SSL.TLS_CLIENT_METHOD)
    context.set_alpn_protos([ALPN_H2])
    context.set_verify(SSL.VERIFY_PEER, callback)
    return context


def _hardened(method: int) -> SSL.Context:
    context = SSL.Context(method)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.set_max_proto_version(SSL.TLS1_3_VERSION)
    context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    return context


def _accept_any(*_finding: object) -> bool:
    return True


def _select_h2(_connection: SSL.Connection, offered: list[bytes]) -> Any:
    return ALPN_H2 if ALPN_H2 in offered else SSL.NO_OVERLAPPING_PROTOCOLS


def _unusable(got: str) -> TransportError:
    return TransportError(
        f"expected a certificate chain and its P-256 key, got {got}", reason=Reason.SERVER_CREDENTIALS_UNUSABLE
    )
