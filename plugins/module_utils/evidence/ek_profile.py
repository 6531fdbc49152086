# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of an endorsement key's certificate: TCG EK Credential Profile 2.5, chapter 3. It checks no chains."""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.crypto import exceptions, rsa, serialization, unreadable, x509
from ..core.files import read_bytes
from ..errors import Refusal, SiteError
from ..reasons import Reason
from . import der

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


MAX_CERTIFICATE_BYTES = 4096

_EK_USAGE = "2.23.133.8.1"
_MANUFACTURER, _MODEL, _VERSION = "2.23.133.2.1", "2.23.133.2.2", "2.23.133.2.3"
_RSAES_OAEP = "1.2.840.113549.1.1.7"
_KNOWN_CRITICAL = {"2.5.29.15", "2.5.29.17", "2.5.29.19", "2.5.29.37"}
_MAX_TEXT = 32
_PARTS = ("issuer", "subject", "not_valid_before_utc", "not_valid_after_utc", "extensions", "signature_algorithm_oid")
_ID_DIGITS = 8

MANUFACTURERS = {
    "AMD": "AMD",
    "ATML": "Atmel",
    "BRCM": "Broadcom",
    "CSCO": "Cisco",
    "GOOG": "Google",
    "HPE": "HPE",
    "HPI": "HPI",
    "IBM": "IBM",
    "IFX": "Infineon",
    "INTC": "Intel",
    "LEN": "Lenovo",
    "MSFT": "Microsoft",
    "NSM": "National Semiconductor",
    "NTC": "Nuvoton",
    "NTZ": "Nationz",
    "QCOM": "Qualcomm",
    "SMSC": "SMSC",
    "SMSN": "Samsung",
    "STM": "STMicroelectronics",
    "TXN": "Texas Instruments",
    "VMW": "VMware",
    "WEC": "Winbond",
}
"""Vendor ids of the TCG's registry (four letters, without padding blanks and zeros) and the names of the makers."""

_NUMBERS = {0x00001014: "IBM"}
"""Vendor ids that are not letters: software TPMs carry IBM's PCI vendor id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmDescription:
    """The chip that a certificate describes; ``manufacturer`` is four letters, or ``id:`` and a number."""

    manufacturer: str
    model: str
    version: str

    @property
    def label(self) -> str:
        """Return maker and model on one line for display, without characters that YAML would need to escape."""
        name = MANUFACTURERS.get(self.manufacturer)
        known = f"{name} ({self.manufacturer})" if name and name != self.manufacturer else self.manufacturer
        return f"{known} {_plain(self.model)}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class EkCertificate:
    """A certificate in the form of the EK profile; ``spki`` is its key as DER SubjectPublicKeyInfo."""

    certificate: x509.Certificate
    spki: bytes
    tpm: TpmDescription


def parse_certificate(data: bytes) -> x509.Certificate:
    """Return the X.509 certificate of ``data`` (DER, bounded); raises `Refusal` EK_CERTIFICATE_MALFORMED."""
    if len(data) > MAX_CERTIFICATE_BYTES:
        raise _malformed(f"at most {MAX_CERTIFICATE_BYTES} bytes", f"{len(data)}")
    certificate: x509.Certificate = _read("a certificate", lambda: x509.load_der_x509_certificate(data))
    _read("its parts", lambda: [getattr(certificate, part) for part in _PARTS])  # the library parses them on access
    signature = _read("a signature", lambda: der.only(data, der.SEQUENCE).children()[2].content)
    if certificate.serial_number <= 0 or signature[:1] != b"\x00":
        raise _malformed("a positive serial number and a signature of whole bytes", "others")
    if certificate.version is not x509.Version.v3:
        raise _malformed("X.509 version 3", certificate.version.name)
    return certificate


def parse_ek_certificate(data: bytes) -> EkCertificate:
    """Return the endorsement certificate of ``data``.

    Raises `Refusal` EK_CERTIFICATE_MALFORMED if ``data`` is no certificate, and EK_CERTIFICATE_PROFILE with everything
    that the profile demands and the certificate lacks.
    """
    certificate = parse_certificate(data)
    spki = spki_of(certificate)
    tpm = _describe(certificate)
    missing = _missing(certificate, tpm)
    if missing or tpm is None:
        raise Refusal(
            f"expected an endorsement certificate with {', '.join(missing)}, got one without",
            reason=Reason.EK_CERTIFICATE_PROFILE,
        )
    return EkCertificate(certificate=certificate, spki=spki, tpm=tpm)


def _missing(certificate: x509.Certificate, tpm: TpmDescription | None) -> list[str]:
    constraints = _extension(certificate, x509.BasicConstraints)
    usage = _extension(certificate, x509.KeyUsage)
    purposes = _extension(certificate, x509.ExtendedKeyUsage)
    unknown = [one for one in certificate.extensions if one.critical and one.oid.dotted_string not in _KNOWN_CRITICAL]
    demanded = {
        "basic constraints of no authority": constraints is not None and not constraints.ca,
        "the key usage of decryption": usage is not None and (usage.key_encipherment or usage.key_agreement),
        f"the purpose {_EK_USAGE}": purposes is not None and any(one.dotted_string == _EK_USAGE for one in purposes),
        "TPM manufacturer, model and version as alternative name": tpm is not None,
        "no critical extension that is unknown": not unknown,
    }
    return [what for what, holds in demanded.items() if not holds]


def _describe(certificate: x509.Certificate) -> TpmDescription | None:
    names = _extension(certificate, x509.SubjectAlternativeName)
    if names is None:
        return None
    found: dict[str, str] = {}
    for name in names.get_values_for_type(x509.DirectoryName):
        found |= {one.oid.dotted_string: str(one.value) for one in name}
    if not {_MANUFACTURER, _MODEL, _VERSION} <= set(found):
        return None
    maker = _manufacturer(found[_MANUFACTURER])
    return TpmDescription(manufacturer=maker, model=found[_MODEL], version=found[_VERSION]) if maker else None


def _manufacturer(text: str) -> str | None:
    """Return the vendor's letters of ``id:`` and eight hex digits; None if ``text`` has another form."""
    digits = text.removeprefix("id:")
    try:
        number = bytes.fromhex(digits)
    except ValueError:
        return None
    if not text.startswith("id:") or len(digits) != _ID_DIGITS:
        return None
    letters = number.rstrip(b"\x00 ")
    if letters and letters.isalnum():
        return letters.decode("ascii")
    return _NUMBERS.get(int.from_bytes(number, "big"), f"id:{binascii.hexlify(number).decode()}")


def spki_of(certificate: x509.Certificate) -> bytes:
    """Return the key as DER SubjectPublicKeyInfo; an RSA key always has the algorithm rsaEncryption.

    Older makers name the padding that an endorsement key is used with (id-RSAES-OAEP, RFC 4055) as the algorithm, and
    no key parser accepts that. The key is the same PKCS #1 structure. Raises `Refusal` EK_CERTIFICATE_MALFORMED.
    """
    if certificate.public_key_algorithm_oid.dotted_string != _RSAES_OAEP:
        key = _read("a public key", certificate.public_key)
    else:
        key = _read("an RSA key", lambda: serialization.load_der_public_key(_key_bits(certificate)))
        if not isinstance(key, rsa.RSAPublicKey):
            raise _malformed("an RSA key", "another")
    return bytes(key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))


def _key_bits(certificate: x509.Certificate) -> bytes:
    fields = der.only(certificate.tbs_certificate_bytes, der.SEQUENCE).children()
    # RFC 5280, 4.1: version [0] if not 1, serial number, algorithm, issuer, validity, subject, key
    index = 6 if fields[0].tag == der.VERSION else 5
    _algorithm, bits = fields[index].children()
    if bits.tag != der.BIT_STRING or bits.content[:1] != b"\x00":
        raise ValueError("a key of whole bytes")
    return bits.content[1:]


def _extension(certificate: x509.Certificate, kind: type[x509.ExtensionType]) -> Any:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _read(what: str, reader: Callable[[], Any]) -> Any:
    try:
        return reader()
    except unreadable(IndexError, Refusal) as error:
        raise _malformed(what, f"{error}"[:200]) from error


def _plain(text: str) -> str:
    kept = (one if one.isascii() and (one.isalnum() or one in " .-_/()+") else "?" for one in text[:_MAX_TEXT])
    return "".join(kept).strip()


def _malformed(expected: str, got: str) -> Refusal:
    return Refusal(
        f"expected {expected} in an endorsement certificate, got {got}", reason=Reason.EK_CERTIFICATE_MALFORMED
    )


# The root store of TPM makers: files and directories of certificates, read once and never downloaded.

_LIMIT = 4 << 20
_SUFFIXES = {".pem", ".crt", ".cer", ".der"}


@dataclass(frozen=True, slots=True)
class EkStore:
    """Trusted roots of endorsement certificates, and ``intermediates`` that only complete chains."""

    roots: tuple[x509.Certificate, ...] = ()
    intermediates: tuple[x509.Certificate, ...] = ()


def load_ek_store(paths: Iterable[str | Path]) -> EkStore:
    """Return the store of the files and directories in ``paths``.

    All certificates of a named file are roots. In a directory (files .pem, .crt, .cer, .der; not recursive) the
    self-signed certificates are roots, and all others are intermediates. Raises `SiteError` EK_AUTHORITIES_UNUSABLE
    for a file without certificates and for a directory without a root.
    """
    roots: list[x509.Certificate] = []
    intermediates: list[x509.Certificate] = []
    for path in map(Path, paths):
        if not path.is_dir():
            roots += _certificates(path)
            continue
        found = [one for file in sorted(path.iterdir()) if file.suffix in _SUFFIXES for one in _certificates(file)]
        anchors = [one for one in found if _self_signed(one)]
        if not anchors:
            raise _unusable(f"a self-signed certificate in {path}")
        roots += anchors
        intermediates += [one for one in found if one not in anchors]
    return EkStore(roots=tuple(roots), intermediates=tuple(intermediates))


def _certificates(path: Path) -> list[x509.Certificate]:
    data = read_bytes(path, limit=_LIMIT)
    try:
        if b"-----BEGIN" in data:
            return list(x509.load_pem_x509_certificates(data))
        return [x509.load_der_x509_certificate(data)]
    except unreadable() as error:
        raise _unusable(f"certificates in PEM or DER in {path}") from error


def _self_signed(certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm):
        return False
    return True


def _unusable(expected: str) -> SiteError:
    return SiteError(f"expected {expected}, found none", reason=Reason.EK_AUTHORITIES_UNUSABLE)
