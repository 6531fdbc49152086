# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attestation methods: an explicit table, alphabetical, statically imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..errors import Refusal
from ..reasons import Reason
from . import tpm2

if TYPE_CHECKING:
    from .evidence import Evidence
    from .tpm2 import VerifiedQuote


class QuoteVerifier(Protocol):
    """What a method offers to the verification of a node."""

    def __call__(self, evidence: Evidence, *, qualifying_data: bytes) -> VerifiedQuote:
        """Return what the evidence says, or raise `Refusal`."""


VERIFIERS: dict[str, QuoteVerifier] = {
    tpm2.VARIANT: tpm2.verify_quote,
}


def verify_evidence(evidence: Evidence, *, qualifying_data: bytes) -> VerifiedQuote:
    """Check evidence by its method; raises `Refusal` VARIANT_UNKNOWN or what the method raises."""
    verifier = VERIFIERS.get(evidence.variant)
    if verifier is None:
        raise Refusal(
            f"expected evidence of {', '.join(VERIFIERS)}, got {evidence.variant[:32]!r}", reason=Reason.VARIANT_UNKNOWN
        )
    return verifier(evidence, qualifying_data=qualifying_data)
