# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""E1 as the transport wants it: evidence in the node's certificate, checked for its form and freshness only.

The join service judges no machine by it: it keeps strangers without a TPM out of the connection table, and the key
service holds the bound quote against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..atls import EVIDENCE_OID
from ..attestation import DEFAULT_REGISTER, issue_doorkeeper, verify_doorkeeper

if TYPE_CHECKING:
    from ..attestation import QuotingTpm
    from ..tpm import LoadedKey

_REGISTERS = (DEFAULT_REGISTER,)
"""A quote must be over something; what it is over decides nothing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attester:
    """A machine's TPM with its two keys loaded."""

    tpm: QuotingTpm
    ek: LoadedKey
    ak: LoadedKey


class DoorkeeperIssuer:
    """Makes E1 on this machine's TPM."""

    def __init__(self, attester: Attester) -> None:
        """Quote with the attestation key of ``attester``."""
        self._attester = attester

    @property
    def oid(self) -> str:
        """The extension that carries it."""
        return EVIDENCE_OID

    def issue(self, *, user_data: bytes, nonce: bytes) -> bytes:
        """Return evidence over our certificate's key and the service's nonce."""
        one = self._attester
        return issue_doorkeeper(one.tpm, one.ak, spki_sha256=user_data, nonce=nonce, pcrs=_REGISTERS)


class DoorkeeperValidator:
    """Accepts any genuine quote over our nonce and the peer's key."""

    @property
    def oid(self) -> str:
        """The extension that carries it."""
        return EVIDENCE_OID

    def validate(self, document: bytes, *, user_data: bytes, nonce: bytes) -> None:
        """Raise `Refusal` unless ``document`` is such a quote."""
        verify_doorkeeper(document, spki_sha256=user_data, nonce=nonce)
