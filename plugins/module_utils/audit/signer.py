# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The head of the log under the TPM's attestation key.

The key is restricted: it signs only what the TPM itself has made. So the head goes into a quote as its qualifying
data, and the quote says at the same time in which run of the TPM, and at which value of its clock, it was signed.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from ..attestation import DEFAULT_REGISTER, Evidence, issue, verify_evidence
from ..errors import Refusal
from ..reasons import Reason
from ..tpm import load_attestation_key, open_tpm

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..attestation import VerifiedQuote
    from ..tpm import Tpm
    from .chain import Head


class HeadSigner:
    """Signs heads by the TPM at one place; it is opened for each head, since others use it as well."""

    def __init__(self, open_one: Callable[[], AbstractContextManager[Tpm]]) -> None:
        """Open the TPM by ``open_one``."""
        self._open_one = open_one

    @classmethod
    def at(cls, tcti: str, *, lock_directory: str | Path = "/run/attested") -> HeadSigner:
        """Return the signer of the TPM at ``tcti``, used under the lock file in ``lock_directory``."""
        return cls(lambda: open_tpm(tcti, lock_directory=lock_directory))

    def sign(self, head: Head) -> str:
        """Return evidence over ``head``, as base64; raises `TpmError`."""
        with self._open_one() as tpm:
            evidence = issue(tpm, load_attestation_key(tpm), qualifying_data=head.digest(), pcrs=(DEFAULT_REGISTER,))
        return base64.b64encode(evidence.to_bytes()).decode("ascii")


def verify_head(head: Head, evidence: str) -> VerifiedQuote:
    """Return the quote over ``head``; raises AUDIT_HEAD_WRONG.

    The caller owes: that the quote's key is the one of that control plane.
    """
    try:
        return verify_evidence(Evidence.parse(base64.b64decode(evidence, validate=True)), qualifying_data=head.digest())
    except (binascii.Error, ValueError, Refusal) as error:
        raise Refusal(
            f"expected a TPM's quote over the head at record {head.sequence}, got: {error}",
            reason=Reason.AUDIT_HEAD_WRONG,
        ) from error
