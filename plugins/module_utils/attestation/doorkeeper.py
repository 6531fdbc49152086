# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""E1, the evidence inside a TLS certificate: it opens the door of a connection and decides nothing else.

Its quote is over the verifier's nonce and the certificate's key. What counts later is that the bound evidence comes
from the same attestation key in the same run of the TPM (`verify`, step 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..atls import doorkeeper_digest
from .evidence import Evidence
from .registry import DEFAULT_VARIANT, admission, verify_evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..tpm import LoadedKey
    from .tpm2 import QuotingTpm, VerifiedQuote


def issue_doorkeeper(tpm: QuotingTpm, ak: LoadedKey, *, spki_sha256: bytes, nonce: bytes, pcrs: Iterable[int]) -> bytes:
    """Return serialised evidence over the other side's ``nonce`` and our certificate's key (32 bytes each)."""
    qualifying_data = doorkeeper_digest(nonce=nonce, spki_sha256=spki_sha256)
    return admission(DEFAULT_VARIANT).issue(tpm, ak, qualifying_data=qualifying_data, pcrs=pcrs).to_bytes()


def verify_doorkeeper(document: bytes, *, spki_sha256: bytes, nonce: bytes) -> VerifiedQuote:
    """Return the quote in ``document`` if it is over our ``nonce`` and the peer's key; raises `Refusal`.

    The caller owes everything else: neither the TPM nor its values are judged here.
    """
    evidence = Evidence.parse(document)
    return verify_evidence(evidence, qualifying_data=doorkeeper_digest(nonce=nonce, spki_sha256=spki_sha256))
