# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the server in the handshake, before the client issues evidence of its own."""

from __future__ import annotations

import base64
import binascii
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from .._deps.crypto import ec, hashes, x509
from ..errors import TransportError
from ..reasons import Reason
from .certificate import open_certificate, server_spki_sha256
from .pins import JoinCaPins, verify_service_certificate
from .seams import NONCE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..core.host import Clock
    from .seams import Validator


# Nonces in TLS: as server name, and as the common name of the only CA that a server accepts.
#
# Wire form (as Constellation 2.2): standard base64 of 32 bytes, 44 characters.


def encode_nonce(nonce: bytes) -> str:
    """Return the 44 characters that carry ``nonce``."""
    return base64.b64encode(nonce).decode("ascii")


def decode_nonce(text: str | bytes) -> bytes:
    """Return the 32 bytes that ``text`` encodes; raises `TransportError` NONCE_MALFORMED for any other text."""
    try:
        nonce = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _malformed("text that is not base64") from error
    if len(nonce) != NONCE_BYTES:
        raise _malformed(f"{len(nonce)} bytes")
    return nonce


def nonce_authority(nonce: bytes, *, now: datetime) -> x509.Certificate:
    """Return a certificate with the subject CN=``nonce``, by which OpenSSL puts the name into the CA list."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, encode_nonce(nonce))])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )


def decode_authorities(names: Sequence[x509.Name]) -> bytes:
    """Return the nonce in a list of acceptable CAs; raises NONCE_MALFORMED unless the list is exactly one nonce."""
    if len(names) != 1:
        raise _malformed(f"{len(names)} acceptable CAs")
    attributes = list(names[0])
    if len(attributes) != 1 or attributes[0].oid != x509.NameOID.COMMON_NAME:
        raise _malformed("a CA name that is not one common name")
    return decode_nonce(str(attributes[0].value))


def _malformed(got: str) -> TransportError:
    return TransportError(f"expected one nonce of {NONCE_BYTES} bytes, got {got}", reason=Reason.NONCE_MALFORMED)


class ServerCheck(Protocol):
    """Decides whether a server is the expected one."""

    @property
    def server_name(self) -> bytes | None:
        """The SNI to send, or None."""

    def check(self, leaf: x509.Certificate) -> None:
        """Raise an `AttestedError` unless ``leaf`` is good; possession of its key is proven by the handshake."""


class PinnedService:
    """The check of a server with a certificate of the pinned join CA for this cluster."""

    def __init__(self, pins: JoinCaPins, cluster_id: bytes, clock: Clock) -> None:
        """Accept certificates that ``pins`` signed for ``cluster_id``."""
        self._pins = pins
        self._cluster_id = cluster_id
        self._clock = clock

    @property
    def server_name(self) -> bytes | None:
        """No SNI: the address does not identify the service."""
        return None

    def check(self, leaf: x509.Certificate) -> None:
        """Verify the leaf against the pins."""
        verify_service_certificate(leaf, pins=self._pins, cluster_id=self._cluster_id, now=self._clock.now())


class AttestedServer:
    """The check of a server that shows evidence over the nonce in our server name; for one connection."""

    def __init__(self, validator: Validator, nonce: bytes, clock: Clock) -> None:
        """Verify evidence with ``validator`` over ``nonce`` (32 random bytes)."""
        self._validator = validator
        self._nonce = nonce
        self._clock = clock

    @property
    def server_name(self) -> bytes | None:
        """The nonce in its wire form."""
        return encode_nonce(self._nonce).encode("ascii")

    def check(self, leaf: x509.Certificate) -> None:
        """Verify the evidence in the leaf."""
        opened = open_certificate((leaf,), oid=self._validator.oid, now=self._clock.now())
        self._validator.validate(opened.evidence, user_data=opened.spki_sha256, nonce=self._nonce)


class UnknownServer:
    """The check of a server without a known identity, which must later send evidence that binds this channel.

    The dates of its certificate are ignored; ``spki_sha256`` (32 bytes) is set after the handshake.
    """

    def __init__(self) -> None:
        """Start without a key."""
        self.spki_sha256 = b""

    @property
    def server_name(self) -> bytes | None:
        """No SNI: the server has no name to prove."""
        return None

    def check(self, leaf: x509.Certificate) -> None:
        """Refuse any certificate but a P-256 one signed by its own key; store the hash of the key."""
        self.spki_sha256 = server_spki_sha256(leaf)
