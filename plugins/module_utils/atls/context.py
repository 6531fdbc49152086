# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TLS contexts: TLS 1.3 only, one for each connection, nothing that survives it.

A context per connection means that no session, ticket, certificate or callback is ever shared; together with
tickets and cache off, no resumption can skip attestation.
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


@dataclass(frozen=True, slots=True)
class ServerCredentials:
    """What a server shows: its chain, leaf first, and the leaf's private key."""

    chain: tuple[x509.Certificate, ...]
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def from_pem(cls, chain: bytes, key: bytes) -> ServerCredentials:
        """Read chain and PKCS 8 key from PEM; raises `TransportError` SERVER_CREDENTIALS_UNUSABLE."""
        try:
            certificates = tuple(x509.load_pem_x509_certificates(chain))
            private = serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError) as error:
            raise _unusable("bytes that are no PEM") from error
        return cls.checked(certificates, private)

    @classmethod
    def checked(cls, chain: tuple[x509.Certificate, ...], key: object) -> ServerCredentials:
        """Join ``chain`` and ``key`` if the leaf is over that key."""
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise _unusable("another kind of key")
        if not chain or chain[0].public_key() != key.public_key():
            raise _unusable("a certificate over another key")
        return cls(chain, key)


def server_context(credentials: ServerCredentials, *, client_authority: x509.Certificate | None) -> SSL.Context:
    """Return the context of one accepted connection.

    With ``client_authority`` (whose name carries our nonce) a client certificate is demanded. The callback lets every
    form of it pass: it is judged right after the handshake, before any byte goes further, so that all rejected peers
    hear the same answer.
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
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _structurally)
    return context


def client_context(decide: Callable[[SSL.Connection, x509.Certificate], bool]) -> SSL.Context:
    """Return the context of one connection to a server.

    ``decide`` gets the leaf while the handshake waits; it must not raise. It may be called more than once for the
    same leaf, because OpenSSL, which knows no trust anchor here, reports several findings.
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


def _structurally(*_finding: object) -> bool:
    return True


def _select_h2(_connection: SSL.Connection, offered: list[bytes]) -> Any:
    return ALPN_H2 if ALPN_H2 in offered else SSL.NO_OVERLAPPING_PROTOCOLS


def _unusable(got: str) -> TransportError:
    return TransportError(
        f"expected a certificate chain and its P-256 key, got {got}", reason=Reason.SERVER_CREDENTIALS_UNUSABLE
    )
