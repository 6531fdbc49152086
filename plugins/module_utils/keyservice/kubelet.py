# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates of the cluster CA: the kubelet's first client certificate, and the key service's own.

A node's request determines the key, never the name. The name is that of the registered identity, and a request for
another name is refused and not corrected. Requested extensions are not copied.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from .._deps.crypto import ec, ed25519, hashes, rsa, serialization, unreadable, x509
from ..errors import KeyServiceError, Refusal
from ..key_kinds import KeyUse, is_accepted, kind_of
from ..reasons import Reason

if TYPE_CHECKING:
    from datetime import datetime

    PublicKey: TypeAlias = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey
    SigningKey: TypeAlias = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey

KUBELET_LIFE = timedelta(hours=72)
SERVICE_LIFE = timedelta(hours=24)
KEY_SERVICE_USER = "attested:key-service"

NODE_GROUP = "system:nodes"
"""The group of all node users of the API."""

MACHINE_GROUP = "attested:"
"""Prefix of the group that names a machine's identity; also in the admission policies of the role key_service."""

_CLOCK_SKEW = timedelta(minutes=5)
_NODE_USER = re.compile(r"system:node:([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)")
MAX_REQUEST_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ClusterCa:
    """The cluster CA: its certificate and its private key; ``others`` are also trusted during a rotation."""

    certificate: x509.Certificate
    private_key: SigningKey = field(repr=False)
    others: tuple[x509.Certificate, ...] = ()

    def pem(self) -> bytes:
        """Return all CA certificates that a node has to trust as PEM, the signing CA first."""
        return _pem((self.certificate, *self.others))


@lru_cache(maxsize=1)
def _pem(certificates: tuple[x509.Certificate, ...]) -> bytes:
    """Return the PEM that every ticket contains; the cache encodes it once."""
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


@dataclass(frozen=True, slots=True)
class KubeletRequest:
    """A verified request: the node's public key and its digest (hex SHA-256 of the SubjectPublicKeyInfo)."""

    public_key: PublicKey
    spki_sha256: str


def load_cluster_ca(certificate: bytes, private_key: bytes) -> ClusterCa:
    """Return the CA of two PEM files; raises CLUSTER_CA_UNUSABLE unless the key fits the first certificate."""
    try:
        ca, *others = x509.load_pem_x509_certificates(certificate)
        key = serialization.load_pem_private_key(private_key, password=None)
    except unreadable():
        raise KeyServiceError(
            "expected the cluster CA as PEM certificate and PEM key, got something else",
            reason=Reason.CLUSTER_CA_UNUSABLE,
        ) from None
    kinds = (ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey, rsa.RSAPrivateKey)
    if not isinstance(key, kinds) or key.public_key() != ca.public_key():
        raise KeyServiceError(
            "expected the private key of the cluster CA, got another key", reason=Reason.CLUSTER_CA_UNUSABLE
        )
    return ClusterCa(ca, key, tuple(others))


def check_kubelet_request(der: bytes, *, node_name: str) -> KubeletRequest:
    """Return the key of a kubelet's request for the registered ``node_name``.

    1. It is small, parses, and is signed by its own key. CSR_MALFORMED
    2. The key is P-256, Ed25519 or RSA of 2048 to 4096 bits. CSR_KEY_UNSUPPORTED
    3. Its subject is exactly O=system:nodes, CN=system:node:<node_name>. CSR_NAME_MISMATCH
    """
    request = parse_request(der)  # 1
    key = supported_key(request)  # 2
    require_subject(request, node_name=node_name)  # 3
    return KubeletRequest(key, spki_sha256(key))


def require_subject(request: x509.CertificateSigningRequest, *, node_name: str) -> None:
    """Raise CSR_NAME_MISMATCH unless the request's subject is exactly that of the node ``node_name``."""
    wanted = {(x509.NameOID.ORGANIZATION_NAME, NODE_GROUP), (x509.NameOID.COMMON_NAME, f"system:node:{node_name}")}
    found = [(attribute.oid, attribute.value) for attribute in request.subject]
    if len(found) != len(wanted) or set(found) != wanted:
        raise Refusal(
            f"expected a request for O={NODE_GROUP}, CN=system:node:{node_name}, "
            f"got one for {request.subject.rfc4514_string()[:200]}",
            reason=Reason.CSR_NAME_MISMATCH,
        )


def node_of(user: str) -> str:
    """Return the node name of an API user, or "" if the user is not a node."""
    found = _NODE_USER.fullmatch(user)
    return found[1] if found else ""


def claimed_node_name(der: bytes) -> str:
    """Return the node name that a request claims, or "" if it claims none; for logs, since it is not verified."""
    try:
        subject = parse_request(der).subject
    except Refusal:
        return ""
    names = [str(one.value) for one in subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return node_of(names[0]) if len(names) == 1 else ""


def spki_sha256(key: PublicKey) -> str:
    """Return the hex SHA-256 of a key's SubjectPublicKeyInfo."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def sign_kubelet_certificate(
    request: KubeletRequest, *, node_name: str, machine: str, ca: ClusterCa, now: datetime
) -> bytes:
    """Return the PEM client certificate of node ``node_name``: 72 h, clientAuth only, no SAN.

    ``machine`` is the name of its identity. As a group of the user it identifies the machine to the API server. So a
    revoked machine is recognised even if another machine now has its node name.
    """
    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, NODE_GROUP),
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, f"{MACHINE_GROUP}{machine}"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, f"system:node:{node_name}"),
        ]
    )
    return _sign_client(subject, request.public_key, ca=ca, now=now, life=KUBELET_LIFE)


def mint_service_credential(ca: ClusterCa, *, now: datetime) -> tuple[bytes, bytes]:
    """Return (certificate PEM, private key PEM) of the key service's API user, good for 24 h."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, KEY_SERVICE_USER)])
    certificate = _sign_client(subject, key.public_key(), ca=ca, now=now, life=SERVICE_LIFE)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate, pem


def parse_request(der: bytes) -> x509.CertificateSigningRequest:
    """Return the parsed request, which is signed by its own key; raises CSR_MALFORMED."""
    if len(der) > MAX_REQUEST_BYTES:
        raise Refusal(
            f"expected a request of at most {MAX_REQUEST_BYTES} bytes, got {len(der)}", reason=Reason.CSR_MALFORMED
        )
    try:
        request = x509.load_der_x509_csr(der)
        signed = request.is_signature_valid
        list(request.subject)
    except unreadable() as error:
        raise Refusal("expected a certificate request in DER, got none", reason=Reason.CSR_MALFORMED) from error
    if not signed:
        raise Refusal("expected a request signed by its own key, its signature is wrong", reason=Reason.CSR_MALFORMED)
    return request


def supported_key(request: x509.CertificateSigningRequest) -> PublicKey:
    """Return the request's key; raises CSR_KEY_UNSUPPORTED."""
    key: Any = request.public_key()
    if not is_accepted(KeyUse.KUBELET, key):
        raise Refusal(
            f"expected a key of {KeyUse.KUBELET.wanted}, got {kind_of(key)}", reason=Reason.CSR_KEY_UNSUPPORTED
        )
    supported: PublicKey = key
    return supported


def _sign_client(subject: x509.Name, key: PublicKey, *, ca: ClusterCa, now: datetime, life: timedelta) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_client_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    algorithm = None if isinstance(ca.private_key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(ca.private_key, algorithm).public_bytes(serialization.Encoding.PEM)


def _client_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
