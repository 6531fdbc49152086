# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names and types of the method ``tpm2``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...tpm import ClockInfo, Credential, LoadedKey, Public, Quote

VARIANT = "tpm2"


class QuotingTpm(Protocol):
    """What issuing evidence and answering a challenge ask of a TPM; `tpm.Tpm` is one."""

    def pcr_read(self, indices: Iterable[int]) -> dict[int, bytes]:
        """Return the values of registers in the SHA-256 bank."""

    def quote(self, ak: LoadedKey, qualifying_data: bytes, pcrs: Iterable[int]) -> Quote:
        """Return a quote of ``ak``."""

    def activate_credential(self, ak: LoadedKey, ek: LoadedKey, credential: Credential) -> bytes:
        """Return the secret of a credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedQuote:
    """A quote whose signature, qualifying data, selection and digest were checked; only `verify_quote` makes one.

    ``pcrs`` are the very values that the quote's digest is over (SHA-256 bank). Whether the AK is that of a known
    TPM is not said here.
    """

    ak_public: Public
    ak_name: bytes
    pcrs: Mapping[int, bytes]
    clock_info: ClockInfo
