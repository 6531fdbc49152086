# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Self-signed certificates that carry evidence: made for each connection, decoded strictly.

One non-critical extension holds the raw evidence, which covers the SHA-256 of the SubjectPublicKeyInfo. The TLS
handshake proves possession of the key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from .._deps.crypto import ec, exceptions, hashes, serialization, unreadable, x509
from ..errors import Refusal
from ..key_kinds import KeyUse, is_accepted
from ..reasons import Reason
from .seams import MAX_EVIDENCE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

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
