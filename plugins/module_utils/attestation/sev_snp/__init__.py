# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variant ``sev-snp``: reports of AMD's secure processor, verification only. Private to the collection."""

from __future__ import annotations

from .report import SnpReport, TcbVersion
from .types import VARIANT, SnpCollateral, SnpEvidence, SnpPolicy, VerifiedSnpReport, load_snp_collateral
from .verifier import verify_snp_report

__all__ = [
    "VARIANT",
    "SnpCollateral",
    "SnpEvidence",
    "SnpPolicy",
    "SnpReport",
    "TcbVersion",
    "VerifiedSnpReport",
    "load_snp_collateral",
    "verify_snp_report",
]
