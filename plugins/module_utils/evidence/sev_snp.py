# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify an SEV-SNP report in numbered steps, offline: chain, revocation, signature, platform, guest, identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._deps.crypto import asymmetric_utils, ec, exceptions, hashes, unreadable, x509
from ..errors import Refusal
from ..reasons import Reason
from . import der
from .evidence import unobserved
from .sev_snp_report import VCEK, VLEK, SnpReport, TcbVersion
from .tee import TeeBinding, require, verify_identity

if TYPE_CHECKING:
    from datetime import datetime

    from .evidence import Reached
    from .tee import TeeIdentity


# Types of the variant ``sev-snp``: evidence, collateral from files, policy, and the result of verification.

VARIANT = "sev-snp"

STEPS = (
    "The report parses",
    "The root, the intermediate and the revocation list belong together and are valid",
    "The certificate of the signing key is of that intermediate and valid",
    "The signature of the report verifies",
    "The certificate names the TCB and the chip of the report",
    "The guest runs at VMPL 0 without debugging and migration",
    "The TCB and the guest are not older than the minimum",
    "The chip is on the allow-list",
    "The key is enrolled, and the report names it and the exchange",
    "The launch measurement is allowed",
)
"""The checks of `verify_snp_report`, in order, for display."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpEvidence:
    """The evidence of a guest: its report, the certificate of the signing key (DER), its X25519 public key."""

    report: bytes
    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpCollateral:
    """AMD's published CAs and revocation list of a processor family; nothing is downloaded.

    ``ark``: the configured root of trust. ``ask``: the ASK for VCEKs, the ASVK for VLEKs.
    """

    ark: x509.Certificate
    ask: x509.Certificate
    crl: x509.CertificateRevocationList


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpPolicy:
    """The requirements on a report. Without measurements or keys every report is refused.

    ``measurements``: launch digests (48 bytes). ``keys``: names of enrolled keys (`tee.key_name`). ``chip_ids``: an
    additional allow-list; empty means any. Debugging, migration and VMPLs other than 0 are always refused.
    """

    measurements: frozenset[bytes]
    keys: frozenset[str]
    minimum_tcb: TcbVersion
    minimum_guest_svn: int = 0
    chip_ids: frozenset[bytes] = frozenset()
    smt: bool = True
    vlek: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedSnpReport:
    """A report that passed every step of `verify_snp_report`: verification only, not proven on hardware."""

    report: SnpReport
    identity: TeeIdentity
    product: str


def load_snp_collateral(*, chain: bytes, crl: bytes) -> SnpCollateral:
    """Parse AMD's files: ``chain`` is PEM (ASK, then ARK), ``crl`` DER.

    Raises `Refusal` TEE_COLLATERAL_MALFORMED.
    """
    try:
        ask, ark = x509.load_pem_x509_certificates(chain)
        revoked = x509.load_der_x509_crl(crl)
    except unreadable() as error:
        raise Refusal(
            "expected a chain of two certificates in PEM and a revocation list in DER, got others",
            reason=Reason.TEE_COLLATERAL_MALFORMED,
        ) from error
    return SnpCollateral(ark=ark, ask=ask, crl=revoked)


MAX_CERTIFICATE_BYTES = 4096

_AMD = "1.3.6.1.4.1.3704.1"
_PRODUCT, _HARDWARE_ID, _FMC = f"{_AMD}.2", f"{_AMD}.4", f"{_AMD}.3.9"
_TCB_PARTS = {"bootloader": f"{_AMD}.3.1", "tee": f"{_AMD}.3.2", "snp": f"{_AMD}.3.3", "microcode": f"{_AMD}.3.8"}
_CHIP_ID_BYTES = 64


def verify_snp_report(
    evidence: SnpEvidence,
    *,
    qualifying_data: bytes,
    policy: SnpPolicy,
    collateral: SnpCollateral,
    now: datetime,
    vtpm_ak_name: bytes = b"",
    reached: Reached = unobserved,
) -> VerifiedSnpReport:
    """Return the verified report of a guest, after these steps.

    1. The report parses strictly (EVIDENCE_MALFORMED).
    2. Root, intermediate and revocation list belong together (TEE_CHAIN_UNTRUSTED) and are valid now
       (TEE_COLLATERAL_EXPIRED); the intermediate is not revoked (TEE_KEY_REVOKED).
    3. The signing key's certificate parses (TEE_COLLATERAL_MALFORMED), is signed by the intermediate
       (TEE_CHAIN_UNTRUSTED) and valid now (TEE_COLLATERAL_EXPIRED).
    4. The report is signed by that key (TEE_SIGNATURE).
    5. The certificate is for the TCB that the report states, and for its chip (TEE_CERTIFICATE_MISMATCH).
    6. The guest: no debugging (TEE_DEBUG), VMPL 0 (TEE_VMPL), no migration; SMT and VLEK if allowed (TEE_ATTRIBUTES).
    7. Reported and launch TCB and the guest's own version are at least the minimum (TEE_TCB_TOO_OLD).
    8. The chip is on the allow-list, if there is one (TEE_CHIP_UNKNOWN).
    9. The key is enrolled (TEE_KEY_UNKNOWN); the report names it, the exchange and the virtual TPM (BINDING_MISMATCH).
    10. The launch measurement is allowed (POLICY_EMPTY, TEE_MEASUREMENT).

    ``qualifying_data``: 32 bytes of this exchange. ``vtpm_ak_name``: from a `VerifiedQuote` that the caller verified
    over the same exchange, if the guest has a virtual TPM; its report matches only with this name.
    The caller must ensure that the exchange is fresh.
    """
    reached(1)
    report = SnpReport.parse(evidence.report)
    reached(2)
    _verify_collateral(collateral, now)
    reached(3)
    certificate, key = _signing_certificate(evidence.certificate, collateral, now)
    reached(4)
    _verify_signature(report, key)
    reached(5)
    _verify_platform(report, certificate)
    reached(6)
    _verify_guest(report, policy)
    reached(7)
    _verify_versions(report, policy)
    reached(8)
    _verify_chip(report, policy)
    reached(9)
    binding = TeeBinding(variant=VARIANT, key=evidence.key, qualifying_data=qualifying_data, vtpm_ak_name=vtpm_ak_name)
    identity = verify_identity(binding, reported=report.report_data, enrolled=policy.keys)
    reached(10)
    _verify_measurement(report, policy)
    return VerifiedSnpReport(report=report, identity=identity, product=_text(_extension(certificate, _PRODUCT)))


def _verify_collateral(collateral: SnpCollateral, now: datetime) -> None:
    ark, ask, crl = collateral.ark, collateral.ask, collateral.crl
    _verify_issued(ark, ark, "a root that signed itself")
    _verify_issued(ask, ark, "an intermediate of the root")
    require(_signed(crl, ark), "a revocation list of the root, got another", Reason.TEE_CHAIN_UNTRUSTED)
    _verify_dates("root", ark.not_valid_before_utc, ark.not_valid_after_utc, now)
    _verify_dates("intermediate", ask.not_valid_before_utc, ask.not_valid_after_utc, now)
    _verify_dates("revocation list", crl.last_update_utc, crl.next_update_utc, now)
    require(
        crl.get_revoked_certificate_by_serial_number(ask.serial_number) is None,
        "an intermediate that is not revoked, got a revoked one",
        Reason.TEE_KEY_REVOKED,
    )


def _signed(crl: x509.CertificateRevocationList, ark: x509.Certificate) -> bool:
    try:
        return crl.issuer == ark.subject and crl.is_signature_valid(ark.public_key())  # type: ignore[arg-type]
    except unreadable():
        return False


def _signing_certificate(
    data: bytes, collateral: SnpCollateral, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePublicKey]:
    if len(data) > MAX_CERTIFICATE_BYTES:
        raise _collateral_malformed(f"at most {MAX_CERTIFICATE_BYTES} bytes", f"{len(data)}")
    try:
        certificate = x509.load_der_x509_certificate(data)
        first, last, _read = certificate.not_valid_before_utc, certificate.not_valid_after_utc, certificate.extensions
        key = certificate.public_key()
    except unreadable() as error:
        raise _collateral_malformed("a certificate", f"{error}") from error
    _verify_issued(certificate, collateral.ask, "a signing key of the intermediate")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise _collateral_malformed("a key on P-384", "another kind")
    _verify_dates("signing key's certificate", first, last, now)
    return certificate, key


def _verify_issued(certificate: x509.Certificate, issuer: x509.Certificate, expected: str) -> None:
    try:
        certificate.verify_directly_issued_by(issuer)
    except unreadable(exceptions.InvalidSignature) as error:
        raise Refusal(f"expected {expected}, got another certificate", reason=Reason.TEE_CHAIN_UNTRUSTED) from error


def _verify_dates(what: str, first: datetime, last: datetime | None, now: datetime) -> None:
    if last is None or not first <= now <= last:
        raise Refusal(
            f"expected a {what} valid at {now:%Y-%m-%d}, got one for {first:%Y-%m-%d} to "
            f"{'no end' if last is None else format(last, '%Y-%m-%d')}",
            reason=Reason.TEE_COLLATERAL_EXPIRED,
        )


def _verify_signature(report: SnpReport, key: ec.EllipticCurvePublicKey) -> None:
    signature = asymmetric_utils.encode_dss_signature(report.r, report.s)
    try:
        key.verify(signature, report.signed, ec.ECDSA(hashes.SHA384()))
    except exceptions.InvalidSignature as error:
        raise Refusal(
            "expected a report signed by the certified key, got another signature", reason=Reason.TEE_SIGNATURE
        ) from error


def _verify_platform(report: SnpReport, certificate: x509.Certificate) -> None:
    certified = TcbVersion(
        **{part: _small(_extension(certificate, oid)) for part, oid in _TCB_PARTS.items()},
        fmc=_small(found) if (found := _extension(certificate, _FMC)) else 0,
    )
    require(
        certified == report.reported_tcb,
        f"a certificate for the TCB {report.reported_tcb}, got one for {certified}",
        Reason.TEE_CERTIFICATE_MISMATCH,
    )
    hardware = _chip(_extension(certificate, _HARDWARE_ID))
    if report.signing_key == VCEK:
        require(
            not report.chip_key_masked and hardware == report.chip_id and any(report.chip_id),
            f"a certificate of the chip {report.chip_id.hex()}, got one of {hardware.hex() or 'no chip'}",
            Reason.TEE_CERTIFICATE_MISMATCH,
        )
    else:
        require(
            report.signing_key == VLEK and not hardware,
            "a certificate without chip for a VLEK, got another kind of key",
            Reason.TEE_CERTIFICATE_MISMATCH,
        )


def _verify_guest(report: SnpReport, policy: SnpPolicy) -> None:
    require(not report.debug, "a guest that cannot be debugged, got one that can", Reason.TEE_DEBUG)
    require(report.vmpl == 0, f"a report of VMPL 0, got one of {report.vmpl}", Reason.TEE_VMPL)
    wrong = {
        "that cannot be migrated": report.migratable,
        "without simultaneous multithreading": report.smt and not policy.smt,
        "whose report the chip's own key signed": report.signing_key == VLEK and not policy.vlek,
    }
    found = [what for what, is_so in wrong.items() if is_so]
    require(not found, f"a guest {', '.join(found)}, got another", Reason.TEE_ATTRIBUTES)


def _verify_versions(report: SnpReport, policy: SnpPolicy) -> None:
    old = {*report.reported_tcb.below(policy.minimum_tcb), *report.launch_tcb.below(policy.minimum_tcb)}
    if report.guest_svn < policy.minimum_guest_svn:
        old.add("guest")
    require(
        not old,
        f"at least {policy.minimum_tcb}, got older versions of {', '.join(sorted(old))}",
        Reason.TEE_TCB_TOO_OLD,
    )


def _verify_chip(report: SnpReport, policy: SnpPolicy) -> None:
    require(
        not policy.chip_ids or report.chip_id in policy.chip_ids,
        f"a chip of the allow-list, got {report.chip_id.hex()}",
        Reason.TEE_CHIP_UNKNOWN,
    )


def _verify_measurement(report: SnpReport, policy: SnpPolicy) -> None:
    require(bool(policy.measurements), "at least one launch measurement in the policy, got none", Reason.POLICY_EMPTY)
    require(
        report.measurement in policy.measurements,
        f"an allowed launch measurement, got {report.measurement.hex()}",
        Reason.TEE_MEASUREMENT,
    )


def _extension(certificate: x509.Certificate, oid: str) -> bytes:
    """Return the bytes of one of AMD's extensions, empty if the certificate does not have it."""
    try:
        return certificate.extensions.get_extension_for_oid(x509.ObjectIdentifier(oid)).value.public_bytes()
    except x509.ExtensionNotFound:
        return b""


def _chip(data: bytes) -> bytes:
    """Return a hardware id, which AMD writes as raw bytes or as an octet string."""
    return data if len(data) in {0, _CHIP_ID_BYTES} else der.only(data, der.OCTET_STRING).content


def _small(data: bytes) -> int:
    return der.integer(der.only(data, der.INTEGER))


def _text(data: bytes) -> str:
    content = der.only(data, der.IA5_STRING).content
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "?" for byte in content[:_CHIP_ID_BYTES])  # noqa: PLR2004


def _collateral_malformed(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected} for the signing key, got {got}", reason=Reason.TEE_COLLATERAL_MALFORMED)
