# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The method ``tpm2``: a quote of a restricted attestation key. Private to the collection."""

from __future__ import annotations

from .issuer import issue
from .types import VARIANT, QuotingTpm, VerifiedQuote
from .verifier import parse_attestation_key, parse_quote, verify_attestation_key, verify_quote, verify_signature

__all__ = [
    "VARIANT",
    "QuotingTpm",
    "VerifiedQuote",
    "issue",
    "parse_attestation_key",
    "parse_quote",
    "verify_attestation_key",
    "verify_quote",
    "verify_signature",
]
