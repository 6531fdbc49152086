# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates of attested TLS: self-signed ones that carry evidence, decoded strictly, and the check of the server.

One non-critical extension holds the raw evidence, which covers the SHA-256 of the SubjectPublicKeyInfo. The TLS
handshake proves possession of the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from .._deps.crypto import ec, exceptions, hashes, serialization, unreadable, x509
from ..errors import Refusal, TransportError
from ..key_kinds import KeyUse, is_accepted
from ..reasons import Reason
from .pins import JoinCaPins, verify_service_certificate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..core.host import Clock


# The interfaces that the transport needs: an issuer and a validator of evidence, and an observer of events.

EVIDENCE_OID = "2.25.256063378068572461403842605243355101751"
"""The X.509 extension that carries `attested.v1.Evidence`: a fixed UUID as an integer (ITU-T X.667)."""

NONCE_BYTES = 32
"""Length of every nonce, in the server name and in the list of acceptable CAs."""

MAX_EVIDENCE_BYTES = 60_000
"""More does not fit into the 64 KiB handshake message of older TLS stacks; event logs are sent in requests."""

ALPN_H2 = b"h2"


class Issuer(Protocol):
    """Issues evidence; called in a worker thread, so it may wait for a TPM."""

    @property
    def oid(self) -> str:
        """Dotted OID of the extension that carries this evidence."""

    def issue(self, *, user_data: bytes, nonce: bytes) -> bytes:
        """Return evidence over ``user_data`` (SHA-256 of our public key) and the peer's ``nonce``."""


class Validator(Protocol):
    """Verifies evidence; called in a few worker threads, or on the event loop (`Limits.judges_inline`)."""

    @property
    def oid(self) -> str:
        """Dotted OID of the extension that carries this evidence."""

    def validate(self, document: bytes, *, user_data: bytes, nonce: bytes) -> bytes:
        """Return the name of the key that signed ``document``, empty if there is none.

        Raises `Refusal` unless ``document`` is good evidence over ``user_data`` and our own ``nonce``.
        """


class Observer(Protocol):
    """Receives the events of connections; `core.logs.Log` implements it."""

    def event(self, name: str, /, **fields: str | float | bool | None) -> None:
        """Record the event ``name``; must neither block nor raise."""


class NoObserver:
    """An observer that ignores all events."""

    def event(self, name: str, /, **fields: str | float | bool | None) -> None:
        """Ignore the event."""


_LIFE = timedelta(hours=24)
"""Long on purpose: the nonce makes a certificate fresh, and at its first boot the clock of a machine is often wrong by
hours. (Constellation: 2 h.)"""

_BARE_LIFE = timedelta(days=3650)
"""The certificate lasts until the service restarts; clients ignore its dates."""

_CURVE = "secp256r1"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestedCertificate:
    """A peer's certificate whose form was checked: ``evidence`` (not verified yet) and the key that it must cover."""

    evidence: bytes
    spki_sha256: bytes


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new P-256 key for one connection."""
    return ec.generate_private_key(ec.SECP256R1())


def spki_sha256(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return the 32 bytes that evidence must cover: SHA-256 over the DER SubjectPublicKeyInfo."""
    return hashlib.sha256(
        key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    ).digest()


def make_certificate(key: ec.EllipticCurvePrivateKey, *, oid: str, evidence: bytes, now: datetime) -> x509.Certificate:
    """Return a self-signed certificate over ``key`` with ``evidence`` under ``oid``; raises EVIDENCE_TOO_LARGE."""
    _bound(evidence)
    extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), evidence)
    return _named(key, now=now, life=_LIFE).add_extension(extension, critical=False).sign(key, hashes.SHA256())


def make_bare_certificate(key: ec.EllipticCurvePrivateKey, *, now: datetime) -> x509.Certificate:
    """Return a self-signed certificate over ``key`` without evidence; evidence that binds the key is sent later."""
    return _named(key, now=now, life=_BARE_LIFE).sign(key, hashes.SHA256())


def _named(key: ec.EllipticCurvePrivateKey, *, now: datetime, life: timedelta) -> x509.CertificateBuilder:
    """Return the builder with the common fields of both kinds of certificates."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "attested.kubernetes")])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFE)
        .not_valid_after(now + life)
    )


def server_spki_sha256(leaf: x509.Certificate) -> bytes:
    """Return SHA-256 of the key of a server without known identity; raises PEER_CERTIFICATE_MALFORMED."""
    return spki_sha256(_self_signing_key(leaf))


def open_certificate(chain: Sequence[x509.Certificate], *, oid: str, now: datetime) -> AttestedCertificate:
    """Return evidence and key of a peer's certificate after these checks; raises `Refusal`.

    1. There is exactly one certificate (PEER_CERTIFICATE_MALFORMED).
    2. Its key is on P-256 and signed it (PEER_CERTIFICATE_MALFORMED).
    3. ``now`` is within its dates (PEER_CERTIFICATE_EXPIRED).
    4. Its only extension is ours (EVIDENCE_MISSING, PEER_CERTIFICATE_MALFORMED) and within the size limit
       (EVIDENCE_TOO_LARGE).

    The caller must verify the evidence over `AttestedCertificate.spki_sha256` and its own nonce.
    """
    if len(chain) != 1:
        raise _malformed("one certificate", f"{len(chain)}")
    certificate = chain[0]
    key = _self_signing_key(certificate)
    _check_dates(certificate, now)
    return AttestedCertificate(evidence=_evidence(certificate, oid), spki_sha256=spki_sha256(key))


def _self_signing_key(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    try:
        key = certificate.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not is_accepted(KeyUse.TLS_PEER, key):
            raise _malformed("a P-256 key", "another key")
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm) as error:
        raise _malformed("a certificate signed by its own key", "another signature") from error
    return key


def _check_dates(certificate: x509.Certificate, now: datetime) -> None:
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise Refusal(
            f"expected a certificate valid at {now:%Y-%m-%dT%H:%M:%SZ}, got {certificate.not_valid_before_utc} to "
            f"{certificate.not_valid_after_utc}",
            reason=Reason.PEER_CERTIFICATE_EXPIRED,
        )


def _evidence(certificate: x509.Certificate, oid: str) -> bytes:
    try:
        extensions = list(certificate.extensions)
    except unreadable() as error:
        raise _malformed("readable extensions", "broken ones") from error
    ours = [item.value for item in extensions if item.oid.dotted_string == oid]
    if not ours or not isinstance(ours[0], x509.UnrecognizedExtension):
        raise Refusal(
            f"expected evidence under {oid}, got {len(extensions)} other extension(s)", reason=Reason.EVIDENCE_MISSING
        )
    if len(extensions) != 1:
        raise _malformed("one extension", f"{len(extensions)}")
    return _bound(ours[0].value)


def _bound(evidence: bytes) -> bytes:
    if not 0 < len(evidence) <= MAX_EVIDENCE_BYTES:
        raise Refusal(
            f"expected evidence of 1 to {MAX_EVIDENCE_BYTES} bytes, got {len(evidence)}",
            reason=Reason.EVIDENCE_TOO_LARGE,
        )
    return evidence


def _malformed(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected}, got {got}", reason=Reason.PEER_CERTIFICATE_MALFORMED)


# Check the server in the handshake, before the client issues evidence of its own.

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
        raise _malformed_nonce("text that is not base64") from error
    if len(nonce) != NONCE_BYTES:
        raise _malformed_nonce(f"{len(nonce)} bytes")
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
        raise _malformed_nonce(f"{len(names)} acceptable CAs")
    attributes = list(names[0])
    if len(attributes) != 1 or attributes[0].oid != x509.NameOID.COMMON_NAME:
        raise _malformed_nonce("a CA name that is not one common name")
    return decode_nonce(str(attributes[0].value))


def _malformed_nonce(got: str) -> TransportError:
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
