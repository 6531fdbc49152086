# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a document in Constellation's form with the TPM of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tpm import ALG_SHA256, PCR_COUNT
from .. import tpm2
from .types import VERIFY_SERVICE_USER_DATA, BankQuote, ConstellationDocument, document_digest

if TYPE_CHECKING:
    from ...tpm import LoadedKey
    from ..tpm2 import QuotingTpm


def issue_constellation_document(
    tpm: QuotingTpm, ak: LoadedKey, *, nonce: bytes, user_data: bytes = VERIFY_SERVICE_USER_DATA
) -> bytes:
    """Return a document over ``user_data`` and the caller's ``nonce``, as their programs read it.

    It holds one quote, of the SHA-256 bank over all registers: the only bank whose values their verifier compares, so
    there is no second one to confuse it with. There is no event log: theirs may not mention registers that the
    operating system extends. Raises `Refusal` BINDING_MALFORMED for a nonce without a byte, and `TpmError`.
    """
    qualifying_data = document_digest(user_data=user_data, nonce=nonce)
    evidence = tpm2.issue(tpm, ak, qualifying_data=qualifying_data, pcrs=range(PCR_COUNT))
    quote = BankQuote(bank=ALG_SHA256, quote=evidence.quote, signature=evidence.signature, pcrs=evidence.pcrs)
    return ConstellationDocument(
        ak_public=evidence.ak_public, quotes=(quote,), event_log=b"", user_data=user_data
    ).to_bytes()
