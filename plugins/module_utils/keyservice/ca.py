# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The join CA: created once per cluster on the admin's machine, pinned by every node.

It signs two things only: tickets (Ed25519 over a labelled digest) and the certificates of the join service. There is no
revocation list: a joining machine knows only the pin. A certificate with a leaked key expires after two hours at most.
Source: docs/protocol/transport.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from .._deps.crypto import ec, ed25519, serialization, unreadable, x509
from ..errors import Refusal, SiteError
from ..key_kinds import KeyUse, is_accepted
from ..reasons import Reason
from ..transport.pins import join_service_name

if TYPE_CHECKING:
    from datetime import datetime

_CA_LIFE = timedelta(days=3653)
SERVER_CERTIFICATE_LIFE = timedelta(hours=2)
"""Validity of a leaf. It is renewed every 40 minutes, so a machine whose clock is an hour ahead accepts it too."""
_CLOCK_SKEW = timedelta(hours=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCa:
    """The join CA: certificate (PEM) and private key (PKCS 8 PEM, secret)."""

    certificate: bytes
    private_key: bytes = field(repr=False)


def make_join_ca(cluster_name: str, *, now: datetime) -> JoinCa:
    """Return a new join CA (Ed25519, ten years) for the cluster called ``cluster_name``."""
    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{cluster_name[:40]} join CA")])
    certificate = (
        _builder(name, name, now=now, life=_CA_LIFE)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, None)
    )
    return JoinCa(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        private_key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def sign_server_certificate(csr_der: bytes, *, ca: JoinCa, cluster_id: bytes, now: datetime) -> bytes:
    """Return the PEM chain (leaf, CA) for the P-256 key of a request; names in the request are ignored.

    Raises `Refusal` CSR_MALFORMED if it is not a request, is not signed by its own key, or the key is not P-256.
    """
    public_key = _requested_key(csr_der)
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "attested join service")])
    leaf = (
        _builder(subject, issuer.subject, now=now, life=SERVER_CERTIFICATE_LIFE)
        .public_key(public_key)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(join_service_name(cluster_id))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(load_signing_key(ca), None)
    )
    return leaf.public_bytes(serialization.Encoding.PEM) + ca.certificate


def load_signing_key(ca: JoinCa) -> ed25519.Ed25519PrivateKey:
    """Return the CA's key; raises `SiteError` SITE_SECRET_MALFORMED unless it is the certificate's Ed25519 key."""
    try:
        key = serialization.load_pem_private_key(ca.private_key, password=None)
        certified = x509.load_pem_x509_certificate(ca.certificate).public_key()
    except unreadable() as error:
        raise SiteError("expected a join CA in PEM, got something else", reason=Reason.SITE_SECRET_MALFORMED) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey) or key.public_key() != certified:
        raise SiteError("expected the Ed25519 key of the join CA, got another key", reason=Reason.SITE_SECRET_MALFORMED)
    return key


def _requested_key(csr_der: bytes) -> ec.EllipticCurvePublicKey:
    try:
        request = x509.load_der_x509_csr(csr_der)
        key = request.public_key()
        valid = request.is_signature_valid
    except unreadable() as error:
        raise Refusal("expected a certificate request in DER, got none", reason=Reason.CSR_MALFORMED) from error
    if not valid or not isinstance(key, ec.EllipticCurvePublicKey) or not is_accepted(KeyUse.TLS_PEER, key):
        raise Refusal("expected a request signed by its own P-256 key", reason=Reason.CSR_MALFORMED)
    return key


def _builder(subject: x509.Name, issuer: x509.Name, *, now: datetime, life: timedelta) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + life)
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
