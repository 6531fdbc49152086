# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Types of the variant ``tdx``: evidence, collateral from files, policy, and what verification yields."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..._deps.crypto import unreadable, x509
from ...errors import Refusal
from ...reasons import Reason
from ...system import load_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..tee import TeeIdentity

VARIANT = "tdx"
MAX_COLLATERAL_BYTES = 1 << 20

_TEXTS = {
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
    """What a trust domain presents: its quote (version 4 or 5, certificates in it) and its own X25519 key."""

    quote: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxCollateral:
    """What Intel publishes for a platform, and the root of trust (DER), which decides. Nothing is fetched.

    ``text``: the collateral as JSON, in the form of Intel's quote verification library. ``valid``: its parts with first
    and last instant. ``revoked``: serial numbers of revoked keys of processors.
    """

    root: bytes
    text: str
    valid: Mapping[str, tuple[datetime, datetime]]
    revoked: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxPolicy:
    """What a quote must say. Without measurements or keys everything is refused.

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
    """What the verified quote says of the trust domain; ``registers`` numbered as in `TdxPolicy`."""

    tee_tcb_svn: bytes
    mr_seam: bytes
    td_attributes: bytes
    xfam: bytes
    registers: Mapping[int, bytes]
    report_data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTdxQuote:
    """A quote that every step of `verify_tdx_quote` let through: verification only, not proven on hardware."""

    report: TdxReport
    identity: TeeIdentity


def load_tdx_collateral(*, collateral: bytes, root: bytes) -> TdxCollateral:
    """Return the collateral of files: ``collateral`` JSON, ``root`` DER; raises `Refusal` TEE_COLLATERAL_MALFORMED."""
    if len(collateral) > MAX_COLLATERAL_BYTES:
        raise _malformed(f"at most {MAX_COLLATERAL_BYTES} bytes", f"{len(collateral)}")
    try:
        text = collateral.decode("utf-8")
        fields = load_json(text)
        if not isinstance(fields, dict) or not all(isinstance(fields.get(name), str) for name in _TEXTS):
            raise ValueError("other fields than those of collateral")
        lists = {name: x509.load_der_x509_crl(bytes.fromhex(fields[name])) for name in ("root_ca_crl", "pck_crl")}
        valid = {name: _dates_of_list(one) for name, one in lists.items()}
        valid |= {name: _dates_of_text(fields[name]) for name in ("tcb_info", "qe_identity")}
        anchor = x509.load_der_x509_certificate(root)
        valid["root"] = anchor.not_valid_before_utc, anchor.not_valid_after_utc
        revoked = frozenset(one.serial_number for one in lists["pck_crl"])
    except unreadable(KeyError) as error:
        raise _malformed("Intel's collateral in JSON and a root in DER", f"{error}"[:200]) from error
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


def _malformed(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected}, got {got}", reason=Reason.TEE_COLLATERAL_MALFORMED)
