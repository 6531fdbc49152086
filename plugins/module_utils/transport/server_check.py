# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a client judges the server, in the handshake, before it makes any evidence of its own."""

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


# Nonces inside TLS: as server name, and as the common name of the one CA that a server accepts.
#
# Wire form (`reference` Constellation 2.2): standard base64 of 32 bytes, 44 characters.


def encode_nonce(nonce: bytes) -> str:
    """Return the 44 characters that carry ``nonce``."""
    return base64.b64encode(nonce).decode("ascii")


def decode_nonce(text: str | bytes) -> bytes:
    """Return the 32 bytes behind ``text``; raises `TransportError` NONCE_MALFORMED for any other spelling."""
    try:
        nonce = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _malformed("text that is not base64") from error
    if len(nonce) != NONCE_BYTES:
        raise _malformed(f"{len(nonce)} bytes")
    return nonce


def nonce_authority(nonce: bytes, *, now: datetime) -> x509.Certificate:
    """Return a throw-away certificate whose subject is CN=``nonce``: the only way to put a name in the CA list."""
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
    """Return the nonce of a list of acceptable CAs; raises NONCE_MALFORMED unless it holds exactly one."""
    if len(names) != 1:
        raise _malformed(f"{len(names)} acceptable CAs")
    attributes = list(names[0])
    if len(attributes) != 1 or attributes[0].oid != x509.NameOID.COMMON_NAME:
        raise _malformed("a CA name that is not one common name")
    return decode_nonce(str(attributes[0].value))


def _malformed(got: str) -> TransportError:
    return TransportError(f"expected one nonce of {NONCE_BYTES} bytes, got {got}", reason=Reason.NONCE_MALFORMED)


class ServerCheck(Protocol):
    """Decides whether a server is the one that was meant."""

    @property
    def server_name(self) -> bytes | None:
        """What goes out as SNI."""

    def check(self, leaf: x509.Certificate) -> None:
        """Raise an `AttestedError` unless ``leaf`` is good; possession of its key is proven by the handshake."""


class PinnedService:
    """The server shows a certificate of the pinned join CA, for this cluster."""

    def __init__(self, pins: JoinCaPins, cluster_id: bytes, clock: Clock) -> None:
        """Accept what ``pins`` signed for ``cluster_id``."""
        self._pins = pins
        self._cluster_id = cluster_id
        self._clock = clock

    @property
    def server_name(self) -> bytes | None:
        """No SNI: the address says nothing about who serves."""
        return None

    def check(self, leaf: x509.Certificate) -> None:
        """Hold the leaf against the pins."""
        verify_service_certificate(leaf, pins=self._pins, cluster_id=self._cluster_id, now=self._clock.now())


class AttestedServer:
    """The server shows evidence over the nonce that we send as server name; one use only."""

    def __init__(self, validator: Validator, nonce: bytes, clock: Clock) -> None:
        """Judge with ``validator`` over ``nonce`` (32 random bytes)."""
        self._validator = validator
        self._nonce = nonce
        self._clock = clock

    @property
    def server_name(self) -> bytes | None:
        """The nonce in its wire form."""
        return encode_nonce(self._nonce).encode("ascii")

    def check(self, leaf: x509.Certificate) -> None:
        """Judge the evidence in the leaf."""
        opened = open_certificate((leaf,), oid=self._validator.oid, now=self._clock.now())
        self._validator.validate(opened.evidence, user_data=opened.spki_sha256, nonce=self._nonce)


class UnknownServer:
    """Nothing is known of the server: evidence that it gives later must bind this channel, or it was nobody.

    The dates of its certificate say nothing; ``spki_sha256`` (32 bytes) is there after the handshake.
    """

    def __init__(self) -> None:
        """Wait for the handshake."""
        self.spki_sha256 = b""

    @property
    def server_name(self) -> bytes | None:
        """No SNI: there is no name to prove."""
        return None

    def check(self, leaf: x509.Certificate) -> None:
        """Refuse what is not a P-256 certificate signed by its own key; note the key."""
        self.spki_sha256 = server_spki_sha256(leaf)
