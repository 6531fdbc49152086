# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Endorsement certificates by the TCG's profile with a test root; each part can be omitted or changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import EccPoint, Public
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import EK_ECC, EK_RSA
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

NOW = datetime(2026, 11, 22, tzinfo=UTC)
EK_PURPOSE = x509.ObjectIdentifier("2.23.133.8.1")
_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
_NAMES = {"manufacturer": "2.23.133.2.1", "model": "2.23.133.2.2", "version": "2.23.133.2.3"}
_RSA_ENCRYPTION = bytes.fromhex("300d06092a864886f70d0101010500")
_ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
_THIRD_VERSION = bytes.fromhex("a003020102")
_RSAES_OAEP = bytes.fromhex("300d06092a864886f70d0101070500")


def ek_public(key: Any) -> Public:
    """Return the TPM's public area of an endorsement key, by the template of its kind."""
    numbers = key.public_numbers()
    if isinstance(key, rsa.RSAPublicKey):
        return replace(EK_RSA, unique=numbers.n.to_bytes(256, "big"))
    return replace(EK_ECC, unique=EccPoint(numbers.x.to_bytes(32, "big"), numbers.y.to_bytes(32, "big")))


def key_usage(*names: str) -> x509.KeyUsage:
    """Return a key usage of exactly these names."""
    return x509.KeyUsage(**{name: name in names for name in _USAGES})


def tpm_name(**changes: str | None) -> x509.SubjectAlternativeName:
    """Return the alternative name of a TPM; None leaves an attribute out."""
    values = {"manufacturer": "id:49465800", "model": "SLB9670", "version": "id:00070055", **changes}
    given = [(x509.ObjectIdentifier(_NAMES[what]), text) for what, text in values.items() if text is not None]
    name = x509.Name([x509.NameAttribute(kind, text) for kind, text in given])
    return x509.SubjectAlternativeName([x509.DirectoryName(name)])


def ek_extensions(**changes: x509.ExtensionType | None) -> dict[str, x509.ExtensionType | None]:
    """Return the extensions of a valid endorsement certificate of an ECC key; None omits an extension."""
    return {
        "constraints": x509.BasicConstraints(ca=False, path_length=None),
        "usage": key_usage("key_agreement"),
        "purpose": x509.ExtendedKeyUsage([EK_PURPOSE]),
        "name": tpm_name(),
        **changes,
    }


def authority_extensions(*, path_length: int | None = None) -> dict[str, x509.ExtensionType | None]:
    """Return the extensions of a CA."""
    return {
        "constraints": x509.BasicConstraints(ca=True, path_length=path_length),
        "usage": key_usage("key_cert_sign"),
    }


@dataclass(slots=True)
class Authority:
    """A key that signs certificates, with its certificate."""

    name: str
    certificate: x509.Certificate = field(init=False)
    key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def root(cls, name: str = "Maker Root CA", **extensions: Any) -> Authority:
        """Return a self-signed root."""
        made = cls(name)
        made.certificate = made.issue(name, made.key.public_key(), authority_extensions(**extensions))
        return made

    def below(
        self, name: str, extensions: dict[str, x509.ExtensionType | None] | None = None, **dates: datetime
    ) -> Authority:
        """Return a CA certified by this one."""
        made = Authority(name)
        chosen = authority_extensions() if extensions is None else extensions
        made.certificate = self.issue(name, made.key.public_key(), chosen, **dates)
        return made

    def issue(
        self,
        subject: str,
        public: Any,
        extensions: dict[str, x509.ExtensionType | None],
        *,
        first: datetime = NOW - timedelta(days=30),
        last: datetime = NOW + timedelta(days=30),
        algorithm: Any = hashes.SHA256(),  # noqa: B008 (it has no state)
    ) -> x509.Certificate:
        """Return a certificate for ``public``; ``algorithm``: hash of the signature, None for an Ed25519 key."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(_common_name(subject))
            .issuer_name(_common_name(self.name))
            .public_key(public)
            .serial_number(7)
            .not_valid_before(first)
            .not_valid_after(last)
        )
        for what, extension in extensions.items():
            if extension is not None:
                builder = builder.add_extension(extension, critical=what != "purpose")
        return builder.sign(self.key, algorithm)

    def issue_oaep(self, subject: str, public: rsa.RSAPublicKey) -> bytes:
        """Return an endorsement certificate with the key algorithm id-RSAES-OAEP, like older ones; signed again."""
        plain = self.issue(subject, public, ek_extensions(usage=key_usage("key_encipherment")))
        tbs = plain.tbs_certificate_bytes
        assert tbs.count(_RSA_ENCRYPTION) == 1
        changed = tbs.replace(_RSA_ENCRYPTION, _RSAES_OAEP)
        signature = self.key.sign(changed, ec.ECDSA(hashes.SHA256()))
        return _sequence(changed + _ECDSA_SHA256 + _element(0x03, b"\x00" + signature))

    def issue_first_version(self, certificate: x509.Certificate) -> bytes:
        """Return a certificate of this CA without its version, so X.509 v1; signed again."""
        tbs = certificate.tbs_certificate_bytes
        content = tbs[2 + (tbs[1] & 0x7F) :] if tbs[1] & 0x80 else tbs[2:]
        assert content.startswith(_THIRD_VERSION)
        changed = _sequence(content.removeprefix(_THIRD_VERSION))
        signature = self.key.sign(changed, ec.ECDSA(hashes.SHA256()))
        return _sequence(changed + _ECDSA_SHA256 + _element(0x03, b"\x00" + signature))


def chain_of(public: Public) -> tuple[x509.Certificate, tuple[bytes, ...]]:
    """Return a vendor's root, and the certificate chain of a TPM with this endorsement key."""
    root = Authority.root()
    middle = root.below("Maker Intermediate CA")
    return root.certificate, (der(middle.issue("", public.key(), ek_extensions())), der(middle.certificate))


def der(certificate: x509.Certificate) -> bytes:
    """Return the bytes of a certificate."""
    return certificate.public_bytes(serialization.Encoding.DER)


def pem(certificate: x509.Certificate) -> bytes:
    """Return the text of a certificate."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)] if text else [])


def _sequence(content: bytes) -> bytes:
    return _element(0x30, content)


def _element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 + len(octets)]) + octets + content
