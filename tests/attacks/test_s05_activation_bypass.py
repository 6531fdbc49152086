# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S5: the proof of activation is wrong; the answer tells nothing of the right one, and there is no second guess."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import BoundEvidence
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of, refused
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.service_bed import Attack, Machine, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

THREAT = Threat(
    id="S5",
    title="Activation bypassed",
    case="CVE-2023-38201",
    bed="api",
    stops=(
        ("evidence/verify.py step 2", "ACTIVATION_NOT_PROVEN"),
        ("evidence/verify.py step 1", "CHALLENGE_UNKNOWN"),
    ),
)


def test_a_wrong_proof_is_answered_with_nothing_of_the_right_one(
    bed: ServiceBed, machines: Callable[..., Machine]
) -> None:
    """Neither to the machine nor to our own log."""
    machine = machines()
    assert machine.attack(Attack()).response
    proofs = []

    def wrong(bound: BoundEvidence) -> BoundEvidence:
        proofs.append(bound.proof)
        return replace(bound, proof=bytes(32))

    line = refused(lambda: machine.attack(Attack(bound=wrong)), bed)
    assert line["reason"] == "ACTIVATION_NOT_PROVEN"
    (right,) = proofs
    assert right.hex() not in json.dumps([*bed.lines("key"), *bed.lines("join")])


def test_the_record_is_gone_after_one_guess() -> None:
    bed = Bed()
    channel, request, binding = bed.exchange()
    wrong = replace(BoundEvidence.parse(binding), proof=bytes(32)).to_bytes()
    assert code_of(lambda: bed.release(channel, request, wrong)) == "ACTIVATION_NOT_PROVEN"
    assert code_of(lambda: bed.release(channel, request, binding)) == "CHALLENGE_UNKNOWN"
    assert bed.status() == {}
    assert bed.release().node_name == "w-1"
