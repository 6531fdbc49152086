# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TDX evidence and collateral by Intel's specifications with a test root; no processor issued it.

Sources: Intel TDX DCAP Quoting Library API (quote format 4), Intel SGX PCK Certificate and CRL Profile, forms of TCB
information and enclave identity of Intel's provisioning certification service, version 4.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tdx import (
    TdxCollateral,
    TdxEvidence,
    load_tdx_collateral,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.x509.oid import NameOID

NOW = datetime(2026, 11, 22, tzinfo=UTC)
SGX = "1.2.840.113741.1.13.1"
FMSPC = bytes.fromhex("00906ed50000")
VENDOR = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
SIGNER = b"\x5a" * 32
TEE_TCB_SVN = bytes([5, 0, 2, *[0] * 13])
REGISTERS = {number: bytes([0x10 + number]) * 48 for number in range(5)}
SEPT_VE_DISABLE = bytes([0, 0, 0, 0x10, 0, 0, 0, 0])
_AUTH = bytes(range(32))


def body(report_data: bytes, **changes: bytes) -> bytes:
    """Return the TD report of a quote; ``changes`` replace fields by name."""
    fields = {
        "tee_tcb_svn": TEE_TCB_SVN,
        "mr_seam": b"\x01" * 48,
        "mr_signer_seam": bytes(48),
        "seam_attributes": bytes(8),
        "td_attributes": SEPT_VE_DISABLE,
        "xfam": bytes.fromhex("e702060000000000"),
        "mr_td": REGISTERS[0],
        "mr_config_id": bytes(48),
        "mr_owner": bytes(48),
        "mr_owner_config": bytes(48),
        **{f"rt_mr{number}": REGISTERS[number + 1] for number in range(4)},
        "report_data": report_data,
        **changes,
    }
    return b"".join(fields.values())


def enclave(vouched: bytes, **changes: bytes) -> bytes:
    """Return the report of a quoting enclave."""
    fields = {
        "cpu_svn": bytes(16),
        "misc_select": bytes(4),
        "reserved1": bytes(28),
        "attributes": bytes.fromhex("11000000000000000000000000000000"),
        "mr_enclave": b"\x77" * 32,
        "reserved2": bytes(32),
        "mr_signer": SIGNER,
        "reserved3": bytes(96),
        "isv_prod_id": (2).to_bytes(2, "little"),
        "isv_svn": (4).to_bytes(2, "little"),
        "reserved4": bytes(60),
        "report_data": vouched + bytes(32),
        **changes,
    }
    return b"".join(fields.values())


@dataclass(slots=True)
class Maker:
    """A test vendor: root, platform CA, TCB signer, processor key, attestation key."""

    root: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    platform: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    signer: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    processor: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    attestation: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def root_certificate(self) -> x509.Certificate:
        """Return the root's own certificate."""
        return self._certificate("Own SGX Root CA", self.root, "Own SGX Root CA", self.root, ca=True, serial=1)

    def platform_certificate(self, *, days: int = 300) -> x509.Certificate:
        """Return the certificate of the CA for processors."""
        name = "Own SGX PCK Platform CA"
        return self._certificate(name, self.platform, "Own SGX Root CA", self.root, ca=True, serial=2, days=days)

    def evidence(self, report_data: bytes, key: bytes, **changes: Any) -> TdxEvidence:
        """Return a signed quote; ``changes`` as in `quote`."""
        return TdxEvidence(quote=self.quote(report_data, **changes), key=key)

    def quote(
        self,
        report_data: bytes,
        *,
        qe: dict[str, bytes] | None = None,
        vendor: bytes = VENDOR,
        pck_days: int = 300,
        flags: bytes = b"\x00\x00\xff",
        **changes: bytes,
    ) -> bytes:
        """Return a quote of version 4; ``qe`` changes the quoting enclave's report, others the trust domain's."""
        header = b"\x04\x00\x02\x00\x81\x00\x00\x00" + bytes(4) + vendor + bytes(20)
        signed = header + body(report_data, **changes)
        public = _raw(self.attestation)
        report = enclave(hashlib.sha256(public + _AUTH).digest(), **(qe or {}))
        pck = self._certificate(
            "Own SGX PCK Certificate",
            self.processor,
            "Own SGX PCK Platform CA",
            self.platform,
            serial=3,
            days=pck_days,
            extension=_sgx_extension(flags),
        )
        chain = b"".join(_pem(one) for one in (pck, self.platform_certificate(), self.root_certificate()))
        inner = report + _sign(self.processor, report) + b"\x20\x00" + _AUTH + _certification(5, chain)
        data = _sign(self.attestation, signed) + public + _certification(6, inner)
        return signed + len(data).to_bytes(4, "little") + data

    def collateral(
        self,
        *,
        revoked: int = 99,
        revoked_by_root: int = 99,
        days: int = 20,
        tcb: dict[str, Any] | None = None,
        qe: dict[str, Any] | None = None,
        issuer: Maker | None = None,
    ) -> TdxCollateral:
        """Return collateral with one TCB level; ``tcb`` and ``qe`` change its texts, ``issuer`` signs them."""
        signer = issuer or self
        chain = signer._certificate("Own SGX TCB Signing", signer.signer, "Own SGX Root CA", signer.root, serial=4)
        signing = (_pem(chain) + _pem(signer.root_certificate())).decode()
        tcb_info, identity = _text({**_tcb_info(days), **(tcb or {})}), _text({**_identity(days), **(qe or {})})
        fields = {
            "pck_crl_issuer_chain": (_pem(self.platform_certificate()) + _pem(self.root_certificate())).decode(),
            "root_ca_crl": self._list("Own SGX Root CA", self.root, revoked_by_root, days).hex(),
            "pck_crl": self._list("Own SGX PCK Platform CA", self.platform, revoked, days).hex(),
            "tcb_info_issuer_chain": signing,
            "tcb_info": tcb_info,
            "tcb_info_signature": _sign(signer.signer, tcb_info.encode()).hex(),
            "qe_identity_issuer_chain": signing,
            "qe_identity": identity,
            "qe_identity_signature": _sign(signer.signer, identity.encode()).hex(),
        }
        root = self.root_certificate().public_bytes(serialization.Encoding.DER)
        return load_tdx_collateral(collateral=json.dumps(fields).encode(), root=root)

    def _list(self, issuer: str, key: Any, revoked: int, days: int) -> bytes:
        entry = x509.RevokedCertificateBuilder().serial_number(revoked).revocation_date(NOW - timedelta(days=5)).build()
        built = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(_name(issuer))
            .last_update(NOW - timedelta(days=10))
            .next_update(NOW + timedelta(days=days))
            .add_extension(x509.CRLNumber(1), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
            .add_revoked_certificate(entry)
            .sign(key, hashes.SHA256())
        )
        return built.public_bytes(serialization.Encoding.DER)

    def _certificate(
        self,
        subject: str,
        key: Any,
        issuer: str,
        issuing: Any,
        *,
        serial: int,
        ca: bool = False,
        days: int = 300,
        extension: bytes = b"",
    ) -> x509.Certificate:
        signs = {"key_cert_sign": ca, "crl_sign": ca, "digital_signature": not ca, "content_commitment": not ca}
        rest = ("key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only")
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(key.public_key())
            .serial_number(serial)
            .not_valid_before(NOW - timedelta(days=60))
            .not_valid_after(NOW + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**signs, **dict.fromkeys(rest, False)), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuing.public_key()), critical=False)
        )
        if extension:
            found = x509.UnrecognizedExtension(x509.ObjectIdentifier(SGX), extension)
            builder = builder.add_extension(found, critical=False)
        return builder.sign(issuing, hashes.SHA256())


def _tcb_info(days: int) -> dict[str, Any]:
    module = {"mrsigner": "00" * 48, "attributes": "00" * 8, "attributesMask": "FF" * 8}
    svns = {"sgxtcbcomponents": [{"svn": 2}] * 16, "pcesvn": 11}
    svns["tdxtcbcomponents"] = [{"svn": svn} for svn in TEE_TCB_SVN]
    level = {"tcb": svns, "tcbDate": _date(-300), "tcbStatus": "UpToDate"}
    return {
        "id": "TDX",
        "version": 3,
        "issueDate": _date(-10),
        "nextUpdate": _date(days),
        "fmspc": FMSPC.hex().upper(),
        "pceId": "0000",
        "tcbType": 0,
        "tcbEvaluationDataNumber": 17,
        "tdxModule": module,
        "tdxModuleIdentities": [],
        "tcbLevels": [level],
    }


def _identity(days: int) -> dict[str, Any]:
    return {
        "id": "TD_QE",
        "version": 2,
        "issueDate": _date(-10),
        "nextUpdate": _date(days),
        "tcbEvaluationDataNumber": 17,
        "miscselect": "00000000",
        "miscselectMask": "FFFFFFFF",
        "attributes": "11000000000000000000000000000000",
        "attributesMask": "FBFFFFFFFFFFFFFF0000000000000000",
        "mrsigner": SIGNER.hex().upper(),
        "isvprodid": 2,
        "tcbLevels": [{"tcb": {"isvsvn": 4}, "tcbDate": _date(-300), "tcbStatus": "UpToDate"}],
    }


def _sgx_extension(flags: bytes) -> bytes:
    components = [_pair(f"{SGX}.2.{number}", b"\x02\x01\x02") for number in range(1, 17)]
    tcb = [*components, _pair(f"{SGX}.2.17", b"\x02\x01\x0b"), _pair(f"{SGX}.2.18", b"\x04\x10" + b"\x02" * 16)]
    configuration = [_pair(f"{SGX}.7.{number}", bytes([1, 1, flag])) for number, flag in enumerate(flags, 1)]
    parts = [
        _pair(f"{SGX}.1", b"\x04\x10" + b"\x0c" * 16),
        _pair(f"{SGX}.2", _sequence(tcb)),
        _pair(f"{SGX}.3", b"\x04\x02\x00\x00"),
        _pair(f"{SGX}.4", b"\x04\x06" + FMSPC),
        _pair(f"{SGX}.5", b"\x0a\x01\x01"),
        _pair(f"{SGX}.6", b"\x04\x10" + b"\x0d" * 16),
        _pair(f"{SGX}.7", _sequence(configuration)),
    ]
    return _sequence(parts)


def _pair(oid: str, value: bytes) -> bytes:
    first, second, *arcs = (int(arc) for arc in oid.split("."))
    content = bytes([40 * first + second])
    for arc in arcs:
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.insert(0, arc & 0x7F | 0x80)
        content += bytes(groups)
    return _sequence([b"\x06" + bytes([len(content)]) + content, value])


def _sequence(parts: list[bytes]) -> bytes:
    content = b"".join(parts)
    size = len(content)
    return b"\x30" + (bytes([size]) if size < 0x80 else b"\x82" + size.to_bytes(2, "big")) + content


def _certification(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "little") + len(data).to_bytes(4, "little") + data


def _sign(key: Any, data: bytes) -> bytes:
    r, s = utils.decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _raw(key: Any) -> bytes:
    form = serialization.PublicFormat.UncompressedPoint
    point: bytes = key.public_key().public_bytes(serialization.Encoding.X962, form)
    return point[1:]


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _text(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _date(days: int) -> str:
    return (NOW + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
