# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S41: one machine's session, nonce or first evidence is used for another's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import issue_handshake_evidence
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of, refused
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.service_bed import Attack, Machine, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
    from ansible_collections.attested.kubernetes.tests.support.tpm_machine import Boots, TpmMachine

THREAT = Threat(
    id="S41",
    title="Session or nonce of another machine",
    case="Keylime's cross-agent attestation tests",
    bed="api",
    stops=(
        ("evidence/verify.py step 1", "CHALLENGE_UNKNOWN"),
        ("evidence/verify.py step 2", "ACTIVATION_NOT_PROVEN"),
        ("evidence/verify.py step 3", "AK_MISMATCH"),
        ("evidence/verify.py step 4", "BINDING_MISMATCH"),
        ("tpm/client.py", "TPM_CREDENTIAL_REFUSED"),
    ),
)


def test_another_machines_nonce(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """A's evidence over B's nonce, in A's session."""
    one, two = machines(), machines()
    other: list[bytes] = []

    def kept(challenge):
        other.append(challenge.nonce)
        return challenge

    assert two.attack(Attack(challenge=kept)).response
    mixed = Attack(challenge=lambda challenge: replace(challenge, nonce=other[0]))
    assert refused(lambda: one.attack(mixed), bed)["reason"] == "ACTIVATION_NOT_PROVEN"


def test_another_machines_answer_in_ones_own_session(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """B's open challenge is answered by B's quote, which A sends: it is over B's session."""
    one, two = machines(), machines()
    unsent: list = []

    def stolen(bound):
        unsent.append(bound)
        return replace(bound, challenge_id=bytes(16))

    assert refused(lambda: two.attack(Attack(bound=stolen)), bed)["reason"] == "CHALLENGE_UNKNOWN"
    assert one.attack(Attack()).response
    mixed = Attack(bound=lambda _unused: unsent[0])
    assert refused(lambda: one.attack(mixed), bed)["reason"] == "BINDING_MISMATCH"


@pytest.mark.parametrize(
    "who", ["the door was opened by another TPM", "the evidence of the door is of another session"]
)
def test_first_evidence_of_another(who: str) -> None:
    """E1 and E2 are of one machine on one connection."""
    bed = Bed()
    channel, request, binding = bed.exchange()
    assert bed.release(channel, request, binding).node_name == "w-1"
    channel, request, binding = bed.exchange()
    if who == "the door was opened by another TPM":
        other = SoftTpm()
        spki, nonce = channel.spki_sha256, channel.peer_nonce
        evidence = issue_handshake_evidence(other, other.ak, spki_sha256=spki, nonce=nonce, pcrs=(15,))
        assert code_of(lambda: bed.release(replace(channel, evidence=evidence), request, binding)) == "AK_MISMATCH"
    else:
        elsewhere = replace(channel, peer_nonce=b"o" * 32)
        assert code_of(lambda: bed.release(elsewhere, request, binding)) == "BINDING_MISMATCH"


def test_a_real_tpm_does_not_open_anothers_challenge(machine: TpmMachine, policy: SitePolicy, booted: Boots) -> None:
    challenge, record = machine.challenged(policy)
    assert machine.verified(machine.answered(challenge), record, policy)
    assert code_of(lambda: booted(tpm="b").answered(challenge)) == "TPM_CREDENTIAL_REFUSED"
