# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module ``attestation_key``: keep the keys in the TPM, say which they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..result import Diff, Result
from .client import open_tpm
from .keys import load_attestation_key, load_endorsement_key, persist_keys, plan_persistence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .client import Tpm


def run(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Keep EK and AK in the TPM that ``params["tcti"]`` names; values: ``ek_sha256``, ``ak_name``, ``ek_certified``."""
    with open_tpm(params["tcti"], timeout_seconds=params["tpm_timeout_seconds"]) as tpm:
        done = plan_persistence(tpm) if check_mode else persist_keys(tpm)
        return Result(
            changed=done.changed,
            values=_describe(tpm),
            diff=Diff(before="", after="".join(f"{line}\n" for line in done.sentences()), header="keys in the TPM"),
        )


def _describe(tpm: Tpm) -> dict[str, Any]:
    ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
    return {
        "ek_sha256": ek.public.spki_sha256(),
        "ak_name": ak.name.hex(),
        "ek_certified": bool(ek.certificates),
    }
