# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The witness: two questions, one at a time, and the TPM free for others half of the time."""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_socket import witness_service
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_exchange import (
    Testimony as Said,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import answer_of
from ansible_collections.attested.kubernetes.tests.support.tpm import SteppingClock
from ansible_collections.attested.kubernetes.tests.support.verification import SoftNode, question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.witness import Witness

HERE = {"exporter": b"e" * 32, "spki_sha256": b"k" * 32}


@dataclass
class SlowTpm:
    """Opens a node's TPM, which takes its time, and counts how often."""

    node: SoftNode
    clock: SteppingClock
    seconds: float = 0.7
    opened: int = 0
    begun_at: list[float] = field(default_factory=list)

    @contextmanager
    def __call__(self) -> Iterator[Attester]:
        self.opened += 1
        self.begun_at.append(self.clock.monotonic())
        with self.node.attester() as one:
            yield one
            self.clock.sleep(self.seconds)


def asked(witness: Witness, request: Any) -> Any:
    """Return the answer of the witness's socket."""
    service = witness_service(witness, log=open_log(stream=io.StringIO()))
    return answer_of(service.answer(request.SerializeToString()), "attested.v1.WitnessResponse")


@pytest.fixture
def node() -> SoftNode:
    return SoftNode()


def challenge_for(node: SoftNode) -> bytes:
    made, _record = question(node.policy()).challenge(ChallengeRequest.parse(node.witness().identity()))
    return made.to_bytes()


def test_the_identity_costs_the_tpm_nothing_after_the_first_time(node: SoftNode) -> None:
    tpm = SlowTpm(node, SteppingClock())
    witness = node.witness(attester=tpm)
    assert [witness.identity() for _unused in range(50)] == [node.witness().identity()] * 50
    assert tpm.opened == 1


def test_the_tpm_rests_as_long_as_it_worked(node: SoftNode) -> None:
    clock = SteppingClock()
    tpm = SlowTpm(node, clock)
    witness, challenge = node.witness(attester=tpm, clock=clock), challenge_for(node)
    for _unused in range(3):
        witness.testimony(challenge, **HERE)
    assert tpm.begun_at == pytest.approx([0.0, 1.4, 2.8])


def test_the_tpm_rests_after_a_failure_too(node: SoftNode) -> None:
    clock = SteppingClock()
    tpm = SlowTpm(node, clock)
    witness, good = node.witness(attester=tpm, clock=clock), challenge_for(node)
    with pytest.raises(AttestedError) as caught:
        witness.testimony(challenge_for(SoftNode()), **HERE)
    assert caught.value.code == "TPM_CREDENTIAL_REFUSED"
    clock.sleep(0.7)
    witness.testimony(good, **HERE)
    assert len(tpm.begun_at) == 2


@pytest.mark.parametrize(
    "channel",
    [
        pytest.param({"exporter": b"", "spki_sha256": b""}, id="none, as over ssh"),
        pytest.param({"exporter": b"e" * 31, "spki_sha256": b"k" * 32}, id="a shorter one"),
        pytest.param({"exporter": b"e" * 32, "spki_sha256": b""}, id="half of one"),
    ],
)
def test_no_evidence_is_made_without_a_channel(node: SoftNode, channel: dict[str, bytes]) -> None:
    tpm = SlowTpm(node, SteppingClock())
    with pytest.raises(AttestedError) as caught:
        node.witness(attester=tpm).testimony(challenge_for(node), **channel)
    assert (caught.value.code, tpm.opened) == ("BINDING_MALFORMED", 0)


@pytest.mark.parametrize(
    "challenge",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff" * 50, id="bytes that are no message"),
        pytest.param(bytes(5000), id="more than a challenge has"),
    ],
)
def test_a_challenge_that_is_none_does_not_reach_the_tpm(node: SoftNode, challenge: bytes) -> None:
    tpm = SlowTpm(node, SteppingClock())
    with pytest.raises(AttestedError) as caught:
        node.witness(attester=tpm).testimony(challenge, **HERE)
    assert caught.value.code in {"EVIDENCE_MALFORMED", "MESSAGE_MALFORMED", "MESSAGE_TOO_LARGE"}
    assert tpm.opened == 0


def test_both_questions_are_answered_as_messages(node: SoftNode) -> None:
    request = message_class("attested.v1.WitnessRequest")()
    request.identify.SetInParent()
    witness = node.witness()
    assert asked(witness, request).identity == witness.identity()
    request.testify.challenge, request.testify.exporter = challenge_for(node), HERE["exporter"]
    request.testify.spki_sha256 = HERE["spki_sha256"]
    said = Said.parse(asked(witness, request).testimony)
    assert (said.exporter, said.spki_sha256) == (HERE["exporter"], HERE["spki_sha256"])


def test_there_is_no_third_question(node: SoftNode) -> None:
    with pytest.raises(AttestedError) as caught:
        asked(node.witness(), message_class("attested.v1.WitnessRequest")())
    assert caught.value.code == "MESSAGE_MALFORMED"


@pytest.mark.parametrize(
    ("permitted", "nonce", "code"),
    [
        pytest.param(False, b"n" * 32, "CONSTELLATION_VERIFY_OFF", id="nobody permitted it"),
        pytest.param(True, b"", "BINDING_MALFORMED", id="no nonce"),
        pytest.param(True, b"n" * 65, "BINDING_MALFORMED", id="a nonce that is too long"),
    ],
)
def test_a_document_in_another_form_is_refused(node: SoftNode, permitted: bool, nonce: bytes, code: str) -> None:
    tpm = SlowTpm(node, SteppingClock())
    witness = node.witness(attester=tpm, insecure_constellation_verify=permitted)
    request = message_class("attested.v1.WitnessRequest")()
    request.constellation.nonce = nonce
    with pytest.raises(AttestedError) as caught:
        asked(witness, request)
    assert (caught.value.code, tpm.opened) == (code, 0)


def test_documents_in_another_form_leave_the_tpm_its_rest_too(node: SoftNode) -> None:
    clock = SteppingClock()
    tpm = SlowTpm(node, clock)
    witness = node.witness(attester=tpm, clock=clock, insecure_constellation_verify=True)
    for _unused in range(3):
        witness.document(b"n" * 32)
    assert tpm.begun_at == pytest.approx([0.0, 1.4, 2.8])
