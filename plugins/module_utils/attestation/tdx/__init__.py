# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variant ``tdx``: quotes of Intel's trust domains, verification only. Private to the collection."""

from __future__ import annotations

from .types import VARIANT, TdxCollateral, TdxEvidence, TdxPolicy, TdxReport, VerifiedTdxQuote, load_tdx_collateral
from .verifier import verify_tdx_quote

__all__ = [
    "VARIANT",
    "TdxCollateral",
    "TdxEvidence",
    "TdxPolicy",
    "TdxReport",
    "VerifiedTdxQuote",
    "load_tdx_collateral",
    "verify_tdx_quote",
]
