# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SEV-SNP evidence by AMD's specification with a test root; no processor issued it, and no test claims so."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.sev_snp import SnpCollateral, SnpEvidence
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.x509.oid import NameOID

NOW = datetime(2026, 11, 22, tzinfo=UTC)
AMD = "1.3.6.1.4.1.3704.1"
CHIP = bytes(range(64))
MEASUREMENT = hashlib.sha384(b"firmware, kernel, command line").digest()
TCB = bytes([3, 1, 0, 0, 0, 0, 8, 115])
"""Boot loader 3, TEE 1, SNP 8, microcode 115."""

POLICY = 1 << 17 | 1 << 16
_PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=48)


def report_bytes(**changes: bytes) -> bytearray:
    """Return an unsigned report of version 3; ``changes``: ``at_<hex offset>`` with the new bytes."""
    report = bytearray(0x4A0)
    fields = {
        0x000: (3).to_bytes(4, "little"),
        0x004: (2).to_bytes(4, "little"),
        0x008: POLICY.to_bytes(8, "little"),
        0x034: (1).to_bytes(4, "little"),
        0x038: TCB,
        0x090: MEASUREMENT,
        0x180: TCB,
        0x188: b"\x19\x01\x01",
        0x1A0: CHIP,
        0x1E0: TCB,
        0x1F0: TCB,
    }
    fields |= {int(name.removeprefix("at_"), 16): value for name, value in changes.items()}
    for offset, value in fields.items():
        report[offset : offset + len(value)] = value
    return report


def extensions(*, tcb: bytes = TCB, chip: bytes | None = CHIP) -> dict[str, bytes]:
    """Return AMD's extensions of a signing key's certificate."""
    parts = {f"{AMD}.3.1": tcb[0], f"{AMD}.3.2": tcb[1], f"{AMD}.3.3": tcb[6], f"{AMD}.3.8": tcb[7]}
    found = {f"{AMD}.2": b"\x16\x08Milan-B0", **{oid: _integer(value) for oid, value in parts.items()}}
    return found | ({f"{AMD}.4": chip} if chip is not None else {})


@dataclass(slots=True)
class Family:
    """A test processor family: root, intermediate, signing key, revocation list."""

    ark_key: Any = field(default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048))
    ask_key: Any = field(default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048))
    chip_key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP384R1()))

    def certificate(
        self,
        subject: str,
        issuer: str,
        public: Any,
        key: Any,
        extra: dict[str, bytes] | None = None,
        *,
        serial: int = 5,
        days: int = 365,
    ) -> x509.Certificate:
        """Return a certificate signed like AMD's: RSASSA-PSS with SHA-384."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(public)
            .serial_number(serial)
            .not_valid_before(NOW - timedelta(days=30))
            .not_valid_after(NOW + timedelta(days=days))
        )
        for oid, value in (extra or {}).items():
            builder = builder.add_extension(
                x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value), critical=False
            )
        return builder.sign(key, hashes.SHA384(), rsa_padding=_PSS)

    def collateral(
        self,
        *,
        revoked: int = 99,
        days: int = 30,
        ark_days: int = 365,
        ask_days: int = 365,
        crl_issuer: str = "ARK-Own",
    ) -> SnpCollateral:
        """Return root, intermediate (serial number 6) and a list that revokes ``revoked``, valid for ``days``."""
        ark = self.certificate("ARK-Own", "ARK-Own", self.ark_key.public_key(), self.ark_key, days=ark_days)
        ask = self.certificate("SEV-Own", "ARK-Own", self.ask_key.public_key(), self.ark_key, serial=6, days=ask_days)
        entry = x509.RevokedCertificateBuilder().serial_number(revoked).revocation_date(NOW - timedelta(days=2)).build()
        crl = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(_name(crl_issuer))
            .last_update(NOW - timedelta(days=1))
            .next_update(NOW + timedelta(days=days))
            .add_revoked_certificate(entry)
            .sign(self.ark_key, hashes.SHA384(), rsa_padding=_PSS)
        )
        return SnpCollateral(ark=ark, ask=ask, crl=crl)

    def endless(self, collateral: SnpCollateral) -> SnpCollateral:
        """Return ``collateral`` with a list without next update (which RFC 5280 5.1.2.5 forbids)."""
        crl = collateral.crl
        until = b"\x17\x0d" + f"{crl.next_update_utc:%y%m%d%H%M%SZ}".encode()
        signed = _tlv(0x30, _content(crl.tbs_certlist_bytes).replace(until, b"", 1))
        whole = _content(crl.public_bytes(serialization.Encoding.DER)).removeprefix(crl.tbs_certlist_bytes)
        algorithm = whole[: -len(_tlv(0x03, b"\x00" + crl.signature))]
        signature = self.ark_key.sign(signed, _PSS, hashes.SHA384())
        encoded = _tlv(0x30, signed + algorithm + _tlv(0x03, b"\x00" + signature))
        return replace(collateral, crl=x509.load_der_x509_crl(encoded))

    def evidence(
        self,
        report_data: bytes,
        key: bytes,
        *,
        certified: dict[str, bytes] | None = None,
        days: int = 365,
        **changes: bytes,
    ) -> SnpEvidence:
        """Return a signed report with its certificate; ``changes`` as in `report_bytes`, before signing."""
        report = report_bytes(**{"at_050": report_data, **changes})
        extra = extensions() if certified is None else certified
        public = self.chip_key.public_key()
        certificate = self.certificate("SEV-VCEK", "SEV-Own", public, self.ask_key, extra, days=days)
        encoded = certificate.public_bytes(serialization.Encoding.DER)
        return SnpEvidence(report=self.signed(report), certificate=encoded, key=key)

    def signed(self, report: bytearray) -> bytes:
        """Return ``report`` with the signature of the chip's key."""
        r, s = utils.decode_dss_signature(self.chip_key.sign(bytes(report[:0x2A0]), ec.ECDSA(hashes.SHA384())))
        return bytes(report[:0x2A0]) + r.to_bytes(72, "little") + s.to_bytes(72, "little") + bytes(368)


def _integer(value: int) -> bytes:
    content = value.to_bytes(value.bit_length() // 8 + 1, "big")
    return b"\x02" + bytes([len(content)]) + content


def _tlv(tag: int, content: bytes) -> bytes:
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, *([0x80 | len(size)] if len(content) > 0x7F else []), *size]) + content


def _content(encoded: bytes) -> bytes:
    """Return the content of a DER structure."""
    return encoded[2 + (encoded[1] & 0x7F if encoded[1] & 0x80 else 0) :]


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
