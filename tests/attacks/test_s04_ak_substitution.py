# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S4: a good endorsement key with somebody else's attestation key, or with one that signs what it is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
    from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange
    from ansible_collections.attested.kubernetes.tests.support.tpm_machine import Boots, TpmMachine

THREAT = Threat(
    id="S4",
    title="Attestation key substituted",
    case="CVE-2021-3406, CVE-2022-1053",
    bed="swtpm",
    stops=(
        ("evidence/verify.py step 3", "AK_MISMATCH"),
        ("evidence/tpm2.py step 1", "AK_ATTRIBUTES"),
        ("evidence/tpm2.py step 4", "AK_HIERARCHY"),
        ("keyservice/release.py step 3", "AK_NOT_PINNED"),
        ("tpm/client.py", "TPM_CREDENTIAL_REFUSED"),
    ),
)

FIXED_TPM, SENSITIVE_DATA_ORIGIN, RESTRICTED = 1 << 1, 1 << 5, 1 << 16


def test_the_machine_opens_the_challenge_and_another_tpm_quotes(
    machine: TpmMachine, policy: SitePolicy, booted: Boots
) -> None:
    """(a) Both are real, both hold the same boot."""
    other = booted(tpm="b")
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge)
    assert machine.verified(given, record, policy)
    quote = other.tpm.quote(other.ak, given.binding, challenge.selection)
    evidence = replace(
        given.bound.evidence, ak_public=other.ak.public.marshal(), quote=quote.attest, signature=quote.signature
    )
    swapped = replace(given, bound=replace(given.bound, evidence=evidence))
    assert code_of(lambda: machine.verified(swapped, record, policy)) == "AK_MISMATCH"


def test_a_challenge_for_another_tpm_is_not_opened(machine: TpmMachine, policy: SitePolicy, booted: Boots) -> None:
    """(a) The real TPM checks the attestation key's name before it gives the secret."""
    challenge, record = machine.challenged(policy)
    assert machine.verified(machine.answered(challenge), record, policy)
    assert code_of(lambda: booted(tpm="b").answered(challenge)) == "TPM_CREDENTIAL_REFUSED"


def test_another_key_than_the_pinned_one() -> None:
    """(b) The same TPM shows a second attestation key after its first was recorded; one record feeds both checks."""
    bed = Bed()
    assert bed.release().node_name == "w-1"
    other = SoftTpm()
    bed.tpm.ak, bed.tpm._ak_key = other.ak, other._ak_key
    assert code_of(bed.release) == "AK_NOT_PINNED"


def test_the_stored_key_was_changed() -> None:
    """(b) Who can write the record of one machine cannot make another's key good: the machine is refused."""
    bed = Bed()
    assert bed.release().node_name == "w-1"
    bed.gateway._objects["nodeidentities"][bed.identity.name]["status"]["akName"] = "000b" + "ee" * 32
    assert code_of(bed.release) == "AK_NOT_PINNED"


@pytest.mark.parametrize(
    "bit",
    [
        pytest.param(FIXED_TPM, id="a key that may leave its TPM"),
        pytest.param(SENSITIVE_DATA_ORIGIN, id="a key that was made elsewhere"),
        pytest.param(RESTRICTED, id="a key that signs whatever it is given"),
    ],
)
def test_a_key_with_other_attributes(exchange: Exchange, bit: int) -> None:
    """(c) Already the challenge is refused."""
    assert exchange.challenged()
    weaker = replace(exchange.tpm.ak.public, attributes=exchange.tpm.ak.public.attributes & ~bit)
    assert code_of(lambda: exchange.challenged(ak_public=weaker)) == "AK_ATTRIBUTES"


def test_a_key_of_the_owners_hierarchy(exchange: Exchange) -> None:
    """(c) Such a key's quotes hide the TPM's counters."""
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    assert exchange.verified(given, record)
    attest = Attest.parse(given.bound.evidence.quote)
    quote = exchange.tpm.signed(replace(attest, qualified_signer=exchange.tpm.ak.public.qualified_name(0x40000001)))
    evidence = replace(given.bound.evidence, quote=quote.attest, signature=quote.signature)
    forged = replace(given.bound, evidence=evidence)
    assert code_of(lambda: exchange.verified(given, record, bound=forged)) == "AK_HIERARCHY"
