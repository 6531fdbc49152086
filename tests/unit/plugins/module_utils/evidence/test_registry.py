# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of attestation variants: what is in it, what is not, and that the flow asks it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import (
    DEFAULT_VARIANT,
    VARIANTS,
    Standing,
    admission,
    issue_handshake_evidence,
    own_evidence,
    unproven_evidence,
    variant,
    verify_evidence,
)
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import Evidence

TPM = SoftTpm({4: b"b" * 32})
PAGE = ROOT / "docs" / "protocol" / "attestation.md"


def evidence(name: str) -> Evidence:
    issued = admission(DEFAULT_VARIANT).issue(TPM, TPM.ak, qualifying_data=b"q" * 32, pcrs=(4,))
    return replace(issued, variant=name)


def refused(name: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        verify_evidence(evidence(name), qualifying_data=b"q" * 32)
    return caught.value


def test_rows_are_alphabetical_and_named_by_their_key() -> None:
    assert list(VARIANTS) == sorted(VARIANTS)
    assert [row.name for row in VARIANTS.values()] == list(VARIANTS)


def test_the_variant_of_a_tpm_admits() -> None:
    assert verify_evidence(evidence("tpm2"), qualifying_data=b"q" * 32).pcrs == {4: b"b" * 32}


@pytest.mark.parametrize("name", ["", "TPM2", "tpm", "tpm2 ", "x" * 1000])
def test_evidence_of_no_known_variant(name: str) -> None:
    error = refused(name)
    assert error.code == "VARIANT_UNKNOWN"
    assert len(error.message) < 200


def test_a_variant_without_admission_admits_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused although its verifier would call the evidence good."""
    monkeypatch.setitem(VARIANTS, "other", replace(variant("tpm2"), name="other", admission=None))
    error = refused("other")
    assert (error.code, error.message) == (
        "VARIANT_NOT_ADMITTED",
        "expected evidence of tpm2 from a machine that joins, got other",
    )


def test_handshake_evidence_goes_through_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(VARIANTS, DEFAULT_VARIANT)
    with pytest.raises(Refusal) as caught:
        issue_handshake_evidence(TPM, TPM.ak, spki_sha256=b"k" * 32, nonce=b"n" * 32, pcrs=(4,))
    assert caught.value.code == "VARIANT_UNKNOWN"


def test_kinds_that_nobody_ran_on_hardware_are_named_until_somebody_did(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_evidence() == "tpm2: proven with software TPMs and recorded boots of machines"
    assert unproven_evidence() == "sev-snp, tdx: verification only, not proven on hardware"
    monkeypatch.setitem(VARIANTS, "tdx", replace(variant("tdx"), standing=Standing.PROVEN))
    assert unproven_evidence() == "sev-snp: verification only, not proven on hardware"
    monkeypatch.setitem(VARIANTS, "sev-snp", replace(variant("sev-snp"), standing=Standing.PROVEN))
    assert unproven_evidence() == ""


def test_a_kind_that_nobody_ran_on_hardware_admits_nobody() -> None:
    """Status and report say "verification only" of it, so it had better be only that."""
    assert [row.name for row in VARIANTS.values() if row.admission and row.standing is Standing.UNPROVEN] == []


def test_the_documented_table_is_this_one() -> None:
    rows = [
        f"| `{row.name}` | {'yes' if row.issue else 'no'} | {'yes' if row.admission else 'no'} | {row.standing.value} |"
        for row in VARIANTS.values()
    ]
    listed = PAGE.read_text().split("| variant | issued here |")[1].split("\n\n")[0].splitlines()[2:]
    assert listed == rows
