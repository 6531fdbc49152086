# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify a TDX quote in numbered steps, offline; the library `dcap-qvl` checks chains, signatures and TCB levels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .._deps.crypto import unreadable, x509
from .._deps.tdx import dcap_qvl
from ..core.documents import load_json
from ..errors import Refusal
from ..reasons import Reason
from .evidence import unobserved
from .tee import TeeBinding, require, verify_identity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .evidence import Reached
    from .tee import TeeIdentity


# Types of the variant ``tdx``: evidence, collateral from files, policy, and the result of verification.

VARIANT = "tdx"

STEPS = (
    "The quote parses and is that of a trust domain",
    "The collateral and the certificates of the processor are valid, its key is not revoked",
    "The chains, the signatures, the quoting enclave and the TCB level verify",
    "The TDX module, the features and the attributes are allowed",
    "The key is enrolled, and the report names it and the exchange",
    "MRTD and every other register of the policy have an allowed value",
)
"""The checks of `verify_tdx_quote`, in order, for display."""
MAX_COLLATERAL_BYTES = 1 << 20

_COLLATERAL_TEXTS = {
    "pck_crl_issuer_chain",
    "root_ca_crl",
    "pck_crl",
    "tcb_info_issuer_chain",
    "tcb_info",
    "tcb_info_signature",
    "qe_identity_issuer_chain",
    "qe_identity",
    "qe_identity_signature",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxEvidence:
    """The evidence of a trust domain: its quote (version 4 or 5, with certificates) and its X25519 public key."""

    quote: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxCollateral:
    """Intel's published collateral of a platform, and the root of trust (DER). Nothing is downloaded.

    ``text``: the collateral as JSON, in the form of Intel's quote verification library. ``valid``: the first and the
    last valid instant of each part. ``revoked``: serial numbers of the certificates of revoked processor keys.
    """

    root: bytes
    text: str
    valid: Mapping[str, tuple[datetime, datetime]]
    revoked: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxPolicy:
    """The requirements on a quote. Without measurements or keys every quote is refused.

    ``measurements``: register to allowed values (48 bytes): 0 is MRTD, which must be among them, 1 to 4 RTMR 0 to 3.
    ``keys``: names of enrolled keys. ``minimum_tee_tcb_svn``: component-wise. ``statuses``: of Intel's TCB levels.
    ``xfam``, ``mr_seam``: allowed values; empty means any that the collateral allows. Debugging, profiling,
    migration and service domains are always refused.
    """

    measurements: Mapping[int, frozenset[bytes]]
    keys: frozenset[str]
    minimum_tee_tcb_svn: bytes = bytes(16)
    minimum_evaluation_number: int = 0
    statuses: frozenset[str] = frozenset({"UpToDate"})
    rejected_advisories: frozenset[str] = frozenset()
    xfam: frozenset[bytes] = frozenset()
    mr_seam: frozenset[bytes] = frozenset()
    smt: bool = True
    dynamic_platform: bool = False
    cached_keys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxReport:
    """The trust domain that the verified quote describes; ``registers`` have the numbers of `TdxPolicy`."""

    tee_tcb_svn: bytes
    mr_seam: bytes
    td_attributes: bytes
    xfam: bytes
    registers: Mapping[int, bytes]
    report_data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTdxQuote:
    """A quote that passed every step of `verify_tdx_quote`: verification only, not proven on hardware."""

    report: TdxReport
    identity: TeeIdentity


def load_tdx_collateral(*, collateral: bytes, root: bytes) -> TdxCollateral:
    """Parse collateral: ``collateral`` is JSON, ``root`` DER; raises `Refusal` TEE_COLLATERAL_MALFORMED."""
    if len(collateral) > MAX_COLLATERAL_BYTES:
        raise _collateral_malformed(f"at most {MAX_COLLATERAL_BYTES} bytes", f"{len(collateral)}")
    try:
        text = collateral.decode("utf-8")
        fields = load_json(text)
        if not isinstance(fields, dict) or not all(isinstance(fields.get(name), str) for name in _COLLATERAL_TEXTS):
            raise ValueError("other fields than those of collateral")
        lists = {name: x509.load_der_x509_crl(bytes.fromhex(fields[name])) for name in ("root_ca_crl", "pck_crl")}
        valid = {name: _dates_of_list(one) for name, one in lists.items()}
        valid |= {name: _dates_of_text(fields[name]) for name in ("tcb_info", "qe_identity")}
        anchor = x509.load_der_x509_certificate(root)
        valid["root"] = anchor.not_valid_before_utc, anchor.not_valid_after_utc
        revoked = frozenset(one.serial_number for one in lists["pck_crl"])
    except unreadable(KeyError) as error:
        raise _collateral_malformed("Intel's collateral in JSON and a root in DER", f"{error}"[:200]) from error
    return TdxCollateral(root=root, text=text, valid=valid, revoked=revoked)


def _dates_of_list(one: x509.CertificateRevocationList) -> tuple[datetime, datetime]:
    if one.next_update_utc is None:
        raise ValueError("a revocation list without next update")
    return one.last_update_utc, one.next_update_utc


def _dates_of_text(text: str) -> tuple[datetime, datetime]:
    fields: Mapping[str, Any] = load_json(text)
    first, last = (datetime.fromisoformat(fields[name]) for name in ("issueDate", "nextUpdate"))
    if first.tzinfo is None or last.tzinfo is None:
        raise ValueError("a date without time zone")
    return first, last


def _collateral_malformed(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected}, got {got}", reason=Reason.TEE_COLLATERAL_MALFORMED)


MAX_QUOTE_BYTES = 16384
"""Quotes with their certificates have about 5,000 bytes."""

_VERSIONS = (4, 5)
_BODY_AT, _BODY_BYTES_10 = {4: 48, 5: 54}, 584
_SIGNATURE_AND_KEY_BYTES = 128
_QE_REPORT_CERTIFICATION = 6
_MRTD, _REGISTERS = 0, ("mr_td", "rt_mr0", "rt_mr1", "rt_mr2", "rt_mr3")

# Parts of the library's error texts, and our reasons; the first match counts. The library has no error codes. An
# unknown text gives a reason of its own, and never a pass.
_TEXTS = (
    ("Debug mode is enabled", Reason.TEE_DEBUG),
    ("Invalid MR service TD", Reason.TEE_ATTRIBUTES),
    ("TD migration", Reason.TEE_ATTRIBUTES),
    ("TD profiling", Reason.TEE_ATTRIBUTES),
    ("TD attributes", Reason.TEE_ATTRIBUTES),
    ("SERVTD_EXT", Reason.TEE_ATTRIBUTES),
    ("SEPT_VE_DISABLE", Reason.TEE_ATTRIBUTES),
    ("not allowed by policy", Reason.TEE_ATTRIBUTES),
    ("TCB status is invalid: Revoked", Reason.TEE_KEY_REVOKED),
    ("TCB status", Reason.TEE_TCB_TOO_OLD),
    ("TDX module TCB level", Reason.TEE_TCB_TOO_OLD),
    ("TDX module identity", Reason.TEE_ATTRIBUTES),
    ("xpired", Reason.TEE_COLLATERAL_EXPIRED),
    ("in the future", Reason.TEE_COLLATERAL_EXPIRED),
    ("QE Identity", Reason.TEE_QE_IDENTITY),
    ("QE MRSIGNER", Reason.TEE_QE_IDENTITY),
    ("QE ISV", Reason.TEE_QE_IDENTITY),
    ("QE MISCSELECT", Reason.TEE_QE_IDENTITY),
    ("QE ATTRIBUTES", Reason.TEE_QE_IDENTITY),
    ("QE report validation", Reason.TEE_QE_IDENTITY),
    ("Unknown QE vendor", Reason.TEE_QE_IDENTITY),
    ("ignature is invalid", Reason.TEE_SIGNATURE),
    ("QE report hash", Reason.TEE_SIGNATURE),
    ("verify certificate chain", Reason.TEE_CHAIN_UNTRUSTED),
    ("Fmspc mismatch", Reason.TEE_CERTIFICATE_MISMATCH),
    ("non-TDX TCB info", Reason.TEE_CERTIFICATE_MISMATCH),
    ("No matching TCB level", Reason.TEE_TCB_TOO_OLD),
    ("TCB eval data number", Reason.TEE_TCB_TOO_OLD),
    ("Advisory ID", Reason.TEE_TCB_TOO_OLD),
)


def verify_tdx_quote(
    evidence: TdxEvidence,
    *,
    qualifying_data: bytes,
    policy: TdxPolicy,
    collateral: TdxCollateral,
    now: datetime,
    vtpm_ak_name: bytes = b"",
    reached: Reached = unobserved,
) -> VerifiedTdxQuote:
    """Return the verified quote of a trust domain, after these steps.

    1. The quote is bounded, parses, is of a trust domain, and has no data after its end (EVIDENCE_MALFORMED).
    2. TCB information, identity of the quoting enclave, revocation lists, root, and the processor's certificates are
       valid now (TEE_COLLATERAL_EXPIRED), the processor's key is not revoked (TEE_KEY_REVOKED).
    3. The library verifies: chains to the configured root (TEE_CHAIN_UNTRUSTED), signatures of quote, quoting enclave
       and collateral (TEE_SIGNATURE), that the collateral is for this platform (TEE_CERTIFICATE_MISMATCH), that the
       quoting enclave is Intel's (TEE_QE_IDENTITY), that the TCB's level is one that the policy allows
       (TEE_TCB_TOO_OLD), debugging (TEE_DEBUG) and attributes (TEE_ATTRIBUTES). Any other error of the library is
       TEE_QUOTE_REFUSED.
    4. Debugging is off, which is checked again (TEE_DEBUG). The TDX module is at least as new as the policy demands
       (TEE_TCB_TOO_OLD). Module and extended features have the policy's values, if it lists any (TEE_ATTRIBUTES).
    5. The key is enrolled (TEE_KEY_UNKNOWN), and the report data name it with the exchange and the virtual TPM
       (BINDING_MISMATCH).
    6. MRTD and every other register that the policy names have an allowed value (POLICY_EMPTY, TEE_MEASUREMENT).

    ``qualifying_data``, ``vtpm_ak_name``: as for `verify_snp_report`. Raises `DependencyError` DEPENDENCY_MISSING if
    the library is not installed. The caller must ensure that the exchange is fresh.
    """
    report = authenticate(evidence.quote, policy=policy, collateral=collateral, now=now, reached=reached)
    reached(5)
    binding = TeeBinding(variant=VARIANT, key=evidence.key, qualifying_data=qualifying_data, vtpm_ak_name=vtpm_ak_name)
    identity = verify_identity(binding, reported=report.report_data, enrolled=policy.keys)
    reached(6)
    _verify_measurements(report, policy)
    return VerifiedTdxQuote(report=report, identity=identity)


def authenticate(
    quote: bytes, *, policy: TdxPolicy, collateral: TdxCollateral, now: datetime, reached: Reached = unobserved
) -> TdxReport:
    """Return the report of a genuine quote of an accepted platform: steps 1 to 4, without the identity."""
    reached(1)
    parsed = _parse(quote)
    reached(2)
    _verify_dates(collateral, now)
    _verify_processor(parsed, collateral, now)
    reached(3)
    _verify_with_library(quote, policy=policy, collateral=collateral, now=now)
    reached(4)
    report = _report(parsed.report)
    _verify_platform(report, policy)
    return report


def _parse(quote: bytes) -> Any:
    if len(quote) > MAX_QUOTE_BYTES:
        raise _malformed(f"at most {MAX_QUOTE_BYTES} bytes", f"{len(quote)}")
    try:
        parsed = dcap_qvl().parse_quote(quote)
        version, is_tdx = parsed.header.version, parsed.is_tdx()
    except ValueError as error:
        raise _malformed("a quote", f"{error}"[:200]) from error
    if not is_tdx or version not in _VERSIONS:
        raise _malformed("a TDX quote of version 4 or 5", f"version {version}")
    begin, end = _signature_data(quote, version)
    if end > len(quote) or any(quote[end:]):
        raise _malformed(f"a quote of {end} bytes, then at most zeros", f"{len(quote)}")
    kind = int.from_bytes(quote[begin + _SIGNATURE_AND_KEY_BYTES :][:2], "little")
    if kind != _QE_REPORT_CERTIFICATION:  # the field is not signed, and the library assumes this type
        raise _malformed(f"certification data of type {_QE_REPORT_CERTIFICATION}", f"type {kind}")
    return parsed


def _signature_data(quote: bytes, version: int) -> tuple[int, int]:
    """Return where the signature data begin and end; in version 5 the size of the body is stored before the body."""
    start = _BODY_AT[version]
    size = _BODY_BYTES_10 if version == _VERSIONS[0] else int.from_bytes(quote[start - 4 : start], "little")
    at = start + size
    return at + 4, at + 4 + int.from_bytes(quote[at : at + 4], "little")


def _verify_dates(collateral: TdxCollateral, now: datetime) -> None:
    wrong = [name for name, (first, last) in collateral.valid.items() if not first <= now <= last]
    require(
        not wrong,
        f"collateral valid at {now:%Y-%m-%d %H:%M}, got {', '.join(sorted(wrong))} of other dates",
        Reason.TEE_COLLATERAL_EXPIRED,
    )


def _verify_processor(parsed: Any, collateral: TdxCollateral, now: datetime) -> None:
    """Refuse two causes that the library reports only as "chain"; the certificates are not yet authenticated here."""
    try:
        chain = x509.load_pem_x509_certificates(bytes(parsed.cert_chain_pem_bytes() or b"").rstrip(b"\0"))
        dates = [(one.not_valid_before_utc, one.not_valid_after_utc) for one in chain]
    except unreadable() as error:
        raise _malformed("certificates of the processor's key in the quote", f"{error}"[:200]) from error
    require(
        all(first <= now <= last for first, last in dates),
        f"certificates of the processor's key valid at {now:%Y-%m-%d}, got others",
        Reason.TEE_COLLATERAL_EXPIRED,
    )
    require(
        chain[0].serial_number not in collateral.revoked,
        "a processor's key that is not revoked, got a revoked one",
        Reason.TEE_KEY_REVOKED,
    )


def _verify_with_library(quote: bytes, *, policy: TdxPolicy, collateral: TdxCollateral, now: datetime) -> None:
    library, seconds = dcap_qvl(), int(now.timestamp())
    demanded = (
        library.QuotePolicy.strict(seconds)
        .min_tcb_eval_data_number(policy.minimum_evaluation_number)
        .reject_advisories(sorted(policy.rejected_advisories))
        .allow_smt(policy.smt)
        .allow_dynamic_platform(policy.dynamic_platform)
        .allow_cached_keys(policy.cached_keys)
    )
    for status in sorted(policy.statuses):
        demanded = demanded.allow_status(status)
    try:
        published = library.QuoteCollateralV3.from_json(collateral.text)
        library.QuoteVerifier(collateral.root).verify_with_policy(quote, published, seconds, demanded)
    except ValueError as error:
        raise _refused(f"{error}") from error


def _refused(message: str) -> Refusal:
    reason = next((reason for text, reason in _TEXTS if text in message), Reason.TEE_QUOTE_REFUSED)
    return Refusal(f"expected a quote that dcap-qvl verifies, got: {message[:300]}", reason=reason)


def _report(body: Any) -> TdxReport:
    return TdxReport(
        tee_tcb_svn=bytes(body.tee_tcb_svn),
        mr_seam=bytes(body.mr_seam),
        td_attributes=bytes(body.td_attributes),
        xfam=bytes(body.xfam),
        registers={number: bytes(getattr(body, name)) for number, name in enumerate(_REGISTERS)},
        report_data=bytes(body.report_data),
    )


def _verify_platform(report: TdxReport, policy: TdxPolicy) -> None:
    require(not report.td_attributes[0], "a trust domain that cannot be debugged, got one that can", Reason.TEE_DEBUG)
    pairs = zip(report.tee_tcb_svn, policy.minimum_tee_tcb_svn, strict=True)
    require(
        all(found >= least for found, least in pairs),
        f"a TDX module of at least {policy.minimum_tee_tcb_svn.hex()}, got {report.tee_tcb_svn.hex()}",
        Reason.TEE_TCB_TOO_OLD,
    )
    named = {"TDX module": (report.mr_seam, policy.mr_seam), "extended features": (report.xfam, policy.xfam)}
    wrong = [f"{what} {found.hex()}" for what, (found, allowed) in named.items() if allowed and found not in allowed]
    require(not wrong, f"those that the policy names, got {', '.join(wrong)}", Reason.TEE_ATTRIBUTES)


def _verify_measurements(report: TdxReport, policy: TdxPolicy) -> None:
    require(
        bool(policy.measurements.get(_MRTD)), "at least one value of MRTD in the policy, got none", Reason.POLICY_EMPTY
    )
    wrong = _deviations(report.registers, policy.measurements)
    require(not wrong, f"allowed measurements, got {'; '.join(wrong)}", Reason.TEE_MEASUREMENT)


def _deviations(found: Mapping[int, bytes], allowed: Mapping[int, frozenset[bytes]]) -> list[str]:
    names = ("MRTD", "RTMR0", "RTMR1", "RTMR2", "RTMR3")
    return [
        f"{names[number] if number < len(names) else number} {found.get(number, b'').hex() or 'nothing'}"
        for number, values in sorted(allowed.items())
        if found.get(number) not in values
    ]


def _malformed(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected}, got {got}", reason=Reason.EVIDENCE_MALFORMED)
