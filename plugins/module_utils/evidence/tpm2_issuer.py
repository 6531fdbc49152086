# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make evidence with the TPM of this machine."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ..errors import TpmError
from ..reasons import Reason
from ..tpm.attest import Attest
from .evidence import Evidence
from .tpm2 import VARIANT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..tpm.commands import LoadedKey
    from .tpm2 import QuotingTpm


_ATTEMPTS = 5


def issue(tpm: QuotingTpm, ak: LoadedKey, *, qualifying_data: bytes, pcrs: Iterable[int]) -> Evidence:
    """Return a quote of ``ak`` over ``pcrs`` with the quoted values; ``qualifying_data`` has at most 64 bytes.

    If a register is extended between reading and quote, both are repeated. Raises `TpmError` TPM_BUSY after five
    attempts, and what the TPM raises.
    """
    wanted = tuple(sorted(set(pcrs)))
    for _unused in range(_ATTEMPTS):
        values = tpm.pcr_read(wanted)
        quote = tpm.quote(ak, qualifying_data, wanted)
        digest = hashlib.sha256(b"".join(values[index] for index in wanted)).digest()
        if Attest.parse(quote.attest).pcr_digest == digest:
            return Evidence(
                variant=VARIANT,
                ak_public=ak.public.marshal(),
                quote=quote.attest,
                signature=quote.signature,
                pcrs=values,
            )
    raise TpmError(
        f"expected registers that stay the same during a quote, they changed {_ATTEMPTS} times", reason=Reason.TPM_BUSY
    )
