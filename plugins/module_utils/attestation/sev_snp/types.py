# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Types of the variant ``sev-snp``: evidence, collateral from files, policy, and what verification yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..._deps.crypto import unreadable, x509
from ...errors import Refusal
from ...reasons import Reason

if TYPE_CHECKING:
    from ..tee import TeeIdentity
    from .report import SnpReport, TcbVersion

VARIANT = "sev-snp"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpEvidence:
    """What a guest presents: its report, the certificate of the key that signed it (DER), its own X25519 key."""

    report: bytes
    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpCollateral:
    """The processor family's authorities and revocation list, as AMD publishes them; nothing is fetched.

    ``ark`` is the root of trust: who configures it decides. ``ask``: the ASK for VCEKs, the ASVK for VLEKs.
    """

    ark: x509.Certificate
    ask: x509.Certificate
    crl: x509.CertificateRevocationList


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpPolicy:
    """What a report must say. Without measurements or keys everything is refused.

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
    """A report that every step of `verify_snp_report` let through: verification only, not proven on hardware."""

    report: SnpReport
    identity: TeeIdentity
    product: str


def load_snp_collateral(*, chain: bytes, crl: bytes) -> SnpCollateral:
    """Return the collateral of AMD's files: ``chain`` PEM (ASK, then ARK), ``crl`` DER.

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
