# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S8: a true quote, but over other registers than demanded, or beside other values than it covers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA1
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest, PcrSelection
from ansible_collections.attested.kubernetes.tests.support.exchange import SELECTION, Exchange
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as some

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
    from ansible_collections.attested.kubernetes.tests.support.tpm_machine import TpmMachine

THREAT = Threat(
    id="S8",
    title="PCR selection confused",
    case="CVE-2024-29039, CVE-2022-0317",
    bed="swtpm",
    stops=(
        ("evidence/verify.py step 5", "QUOTE_SELECTION"),
        ("evidence/tpm2.py step 6", "QUOTE_SELECTION"),
        ("evidence/tpm2.py step 7", "QUOTE_DIGEST"),
        ("evidence/tpm2.py step 2", "QUOTE_MALFORMED"),
    ),
)


def test_a_real_tpm_quotes_what_was_not_asked_for(machine: TpmMachine, policy: SitePolicy) -> None:
    challenge, record = machine.challenged(policy)
    assert machine.verified(machine.answered(challenge), record, policy)
    given = machine.answered(replace(challenge, selection=(0, 7, 15)))
    assert code_of(lambda: machine.verified(given, record, policy)) == "QUOTE_SELECTION"


def test_a_register_that_anybody_resets(machine: TpmMachine, policy: SitePolicy) -> None:
    """PCR 16 beside the demanded ones."""
    challenge, record = machine.challenged(policy)
    assert machine.verified(machine.answered(challenge), record, policy)
    given = machine.answered(replace(challenge, selection=(*challenge.selection, 16)))
    assert code_of(lambda: machine.verified(given, record, policy)) == "QUOTE_SELECTION"


def forged(selections: tuple[PcrSelection, ...]) -> str:
    exchange = Exchange()
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    assert exchange.verified(given, record)
    quote = exchange.tpm.signed(replace(Attest.parse(given.bound.evidence.quote), pcr_selections=selections))
    evidence = replace(given.bound.evidence, quote=quote.attest, signature=quote.signature)
    bound = replace(given.bound, evidence=evidence)
    return code_of(lambda: exchange.verified(given, record, bound=bound))


@pytest.mark.parametrize(
    "selections",
    [
        pytest.param((), id="over nothing"),
        pytest.param((PcrSelection.of(()),), id="over an empty set"),
        pytest.param((PcrSelection(ALG_SHA1, SELECTION),), id="over the SHA-1 bank"),
        pytest.param((PcrSelection.of(SELECTION), PcrSelection(ALG_SHA1, SELECTION)), id="over a second bank as well"),
        pytest.param((PcrSelection.of(SELECTION), PcrSelection.of(SELECTION)), id="over one bank twice"),
        pytest.param((PcrSelection.of((*SELECTION, 16)),), id="over a resettable register as well"),
        pytest.param((PcrSelection.of(SELECTION[1:]),), id="over one less"),
    ],
)
def test_signed_selections(selections: tuple[PcrSelection, ...]) -> None:
    assert forged(selections) == "QUOTE_SELECTION"


def test_values_that_were_not_quoted(exchange: Exchange) -> None:
    """A good value is shown beside a quote over the true one."""
    assert exchange.run()
    exchange.tpm.pcrs[4] = b"evil" * 8
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    pcrs = {**given.bound.evidence.pcrs, 4: exchange.boot.pcrs[4]}
    lied = replace(given.bound, evidence=replace(given.bound.evidence, pcrs=pcrs))
    assert code_of(lambda: exchange.verified(given, record, bound=lied)) == "QUOTE_DIGEST"


@settings(max_examples=100, deadline=None)
@for_all(indices=some.sets(some.integers(0, 23)), bit=some.integers(0, 255), register=some.sampled_from(SELECTION))
def test_selection_and_digest_both_match_or_it_is_refused(indices: set[int], bit: int, register: int) -> None:
    """Whatever set is signed, whatever bit of whatever value is changed."""
    if tuple(sorted(indices)) != SELECTION:
        assert forged((PcrSelection.of(indices),)) == "QUOTE_SELECTION"
    exchange = Exchange()
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    value = bytearray(given.bound.evidence.pcrs[register])
    value[bit // 8] ^= 1 << bit % 8
    pcrs = {**given.bound.evidence.pcrs, register: bytes(value)}
    lied = replace(given.bound, evidence=replace(given.bound.evidence, pcrs=pcrs))
    assert code_of(lambda: exchange.verified(given, record, bound=lied)) == "QUOTE_DIGEST"


def test_registers_out_of_order(exchange: Exchange) -> None:
    """The wire form holds each register once and in order; anything else is not parsed."""
    data = exchange.answered(exchange.challenged()[0]).bound.evidence
    assert type(data).parse(data.to_bytes()) == data
    attest = data.quote
    cut = attest.replace(b"\x00\x00\x00\x01\x00\x0b\x03", b"\x00\x00\x00\x01\x00\x0b\x02")
    assert cut != attest
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    own = given.bound.evidence.quote.replace(b"\x00\x00\x00\x01\x00\x0b\x03", b"\x00\x00\x00\x01\x00\x0b\x02")
    quote = exchange.tpm.signed_bytes(own)
    evidence = replace(given.bound.evidence, quote=quote.attest, signature=quote.signature)
    bound = replace(given.bound, evidence=evidence)
    assert code_of(lambda: exchange.verified(given, record, bound=bound)) == "QUOTE_MALFORMED"
