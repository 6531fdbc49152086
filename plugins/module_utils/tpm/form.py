# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module ``attestation_key``: keep the keys in the TPM, say which they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import TpmError
from ..reasons import Reason
from ..result import Diff, Result
from .client import open_tpm
from .constants import ALG_SHA256, HASH_NAMES
from .keys import load_attestation_key, load_endorsement_key, persist_keys, plan_persistence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .client import Tpm, TpmProperties


_LOCKOUT = (
    "TPM_LOCKOUT: the TPM is in lockout: somebody tried wrong passwords of its objects. Nothing of attested.kubernetes "
    "needs one; find out who tries them, then tpm2_dictionarylockout --clear-lockout"
)


def run(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Keep EK and AK in the TPM that ``params["tcti"]`` names; values: ``ek_sha256``, ``ak_name``, ``ek_certified``.

    Raises TPM_HIERARCHY_DISABLED and TPM_PCR_UNAVAILABLE before anything is kept; a TPM in lockout is a warning.
    """
    with open_tpm(params["tcti"], timeout_seconds=params["tpm_timeout_seconds"]) as tpm:
        known = tpm.properties()
        _require_usable(known)
        done = plan_persistence(tpm) if check_mode else persist_keys(tpm)
        return Result(
            changed=done.changed,
            values=_describe(tpm),
            diff=Diff(before="", after="".join(f"{line}\n" for line in done.sentences()), header="keys in the TPM"),
            warnings=(_LOCKOUT,) if known.in_lockout else (),
        )


def _require_usable(known: TpmProperties) -> None:
    """Raise TPM_HIERARCHY_DISABLED, TPM_PCR_UNAVAILABLE: keys that were kept would be of no use."""
    if known.disabled:
        raise TpmError(
            f"expected the owner and the endorsement hierarchy enabled, got {' and '.join(known.disabled)} off",
            reason=Reason.TPM_HIERARCHY_DISABLED,
        )
    if ALG_SHA256 not in known.banks:
        banks = ", ".join(HASH_NAMES.get(bank, hex(bank)) for bank in known.banks)
        raise TpmError(
            f"expected an active register bank of sha256, got {banks or 'no bank at all'}",
            reason=Reason.TPM_PCR_UNAVAILABLE,
        )


def _describe(tpm: Tpm) -> dict[str, Any]:
    ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
    return {
        "ek_sha256": ek.public.spki_sha256(),
        "ak_name": ak.name.hex(),
        "ek_certified": bool(ek.certificates),
    }
