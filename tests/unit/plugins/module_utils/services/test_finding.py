# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one verification found: from a verified node, from an error, from a result over ssh, and back from JSON."""

from __future__ import annotations

import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import (
    Finding,
    Outcome,
    Received,
    found,
    found_in_result,
    judge,
    not_found,
    proven_machine,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_exchange import (
    Testimony as Said,
)
from ansible_collections.attested.kubernetes.tests.support.fleet import finding, refused, silent
from ansible_collections.attested.kubernetes.tests.support.verification import SoftNode, question

CHANNEL = {"exporter": b"e" * 32, "spki_sha256": b"k" * 32}


def received(node: SoftNode, asked: object) -> Received:
    challenge, record = asked.challenge(ChallengeRequest.parse(node.witness().identity()))  # type: ignore[attr-defined]
    sent = challenge.to_bytes()
    said = Said.parse(node.witness().testimony(sent, **CHANNEL))
    return Received(record=record, challenge=sent, testimony=said, now=asked.clock.now(), **CHANNEL)  # type: ignore[attr-defined]


def test_a_verified_node_is_shown_with_all_that_it_proved():
    node = SoftNode()
    asked = question(node.policy())
    one = found(judge(received(node, asked), asked, node="w-1"), over="service")
    assert (one.node, one.outcome, one.profile, one.nodelock) == ("w-1", Outcome.VERIFIED, "deb13-base", "locked")
    assert one.registers[7] == node.boot.pcrs[7].hex()
    assert any("root=LABEL=root" in event.text for event in one.events)
    assert one.trouble is None


def test_a_refused_node_is_shown_with_what_deviates_and_what_it_booted():
    node = SoftNode()
    asked = question(node.policy(boot="deb13-cmdline"))
    given = received(node, asked)
    with pytest.raises(AttestedError) as caught:
        judge(given, asked, node="w-1")
    one = not_found("w-1", caught.value, over="service", machine=proven_machine(given, asked))
    assert (one.outcome, one.trouble.reason, one.profile) == (Outcome.REFUSED, "PCR_MISMATCH", "")
    assert any(line.startswith("PCR 4: expected ") or "PCR" in line for line in one.trouble.deviations)
    assert one.registers[7] == node.boot.pcrs[7].hex()


@pytest.mark.parametrize(
    ("result", "outcome", "reason"),
    [
        pytest.param({"failed": True, "reason": "PCR_MISMATCH", "msg": "m"}, Outcome.REFUSED, "PCR_MISMATCH", id="no"),
        pytest.param({"unreachable": True, "msg": "m"}, Outcome.UNANSWERED, "MODULE_FAILED", id="no ssh"),
        pytest.param({}, Outcome.UNANSWERED, "MODULE_FAILED", id="nothing at all"),
        pytest.param({"reason": "MADE_UP", "msg": "m"}, Outcome.UNANSWERED, "MODULE_FAILED", id="a code that is none"),
        pytest.param({"finding": finding("w-1").to_document()}, Outcome.VERIFIED, None, id="yes"),
    ],
)
def test_a_result_over_ssh_is_a_finding_too(result, outcome, reason):
    one = found_in_result("w-1", result, over="ssh")
    assert (one.node, one.outcome) == ("w-1", outcome)
    assert (one.trouble.reason if one.trouble else None) == reason


@pytest.mark.parametrize("one", [finding("a"), refused("b"), silent("c")], ids=["verified", "refused", "silent"])
def test_a_finding_survives_json(one):
    assert Finding.from_document(json.loads(json.dumps(one.to_document()))) == one
