# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node testifies, judged: one good exchange, and each thing that is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    BindingContext,
    ChallengeRequest,
    answer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Received, judge, proven_machine
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_exchange import (
    Testimony as Said,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_exchange import exchanged
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.tests.support.verification import SoftNode, question

HERE = {"exporter": b"e" * 32, "spki_sha256": b"k" * 32}
ELSEWHERE = {"exporter": b"E" * 32, "spki_sha256": b"K" * 32}


def received(node: SoftNode, *, asked: Any = None, channel: dict[str, bytes] | None = None, **changes: Any) -> Received:
    """Play one exchange; ``channel`` is what the node sees of it, ``changes`` what this side does."""
    asked = asked or question(node.policy())
    challenge, record = asked.challenge(ChallengeRequest.parse(node.witness().identity()))
    sent = challenge.to_bytes()
    testimony = Said.parse(node.witness().testimony(sent, **(channel or HERE)))
    known = {"record": record, "challenge": sent, "testimony": testimony, "now": asked.clock.now(), **HERE, **changes}
    return Received(**known)


def code_of(given: Received, asked: Any, node: str = "w-1") -> str:
    with pytest.raises(AttestedError) as caught:
        judge(given, asked, node=node)
    return caught.value.code


@pytest.fixture
def node() -> SoftNode:
    return SoftNode()


def test_a_good_node_is_verified_by_name_profile_and_lock(node: SoftNode) -> None:
    found = judge(received(node), question(node.policy()), node="w-1")
    assert (found.identity.node_name, found.verdict.profile) == ("w-1", "deb13-base")
    assert (found.machine.purpose, found.machine.lock.state) == (Purpose.VERIFY, LockState.LOCKED)


@pytest.mark.parametrize(
    "saw",
    [
        pytest.param(ELSEWHERE, id="a proxy that ends TLS"),
        pytest.param({**HERE, "exporter": b"E" * 32}, id="a thief of the service's key, in another TLS session"),
        pytest.param({**HERE, "spki_sha256": b"K" * 32}, id="another certificate"),
    ],
)
def test_genuine_evidence_of_another_channel_is_named_so(node: SoftNode, saw: dict[str, bytes]) -> None:
    assert code_of(received(node, channel=saw), question(node.policy())) == "CHANNEL_NOT_BOUND"


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(HERE, id="a relay that says it saw our channel"),
        pytest.param({"exporter": b"", "spki_sha256": b""}, id="a relay that says nothing"),
        pytest.param({"exporter": b"x" * 32, "spki_sha256": b"y" * 32}, id="a relay that invents a third one"),
    ],
)
def test_a_relay_that_lies_about_the_channel_gains_nothing(node: SoftNode, said: dict[str, bytes]) -> None:
    given = received(node, channel=ELSEWHERE)
    lying = replace(given, testimony=replace(given.testimony, **said))
    assert code_of(lying, question(node.policy())) == "BINDING_MISMATCH"


def test_evidence_without_a_channel_is_refused(node: SoftNode) -> None:
    """What a node answers over ssh is worth nothing here."""
    asked = question(node.policy())
    challenge, record = asked.challenge(ChallengeRequest.parse(node.witness().identity()))
    logs = node.logs.to_bytes()
    request = exchanged(challenge.to_bytes(), logs)
    context = BindingContext(purpose=Purpose.VERIFY, cluster_id=node.cluster_id, request=request)
    bound = answer(node.tpm, challenge, context, ek=node.tpm.ek, ak=node.tpm.ak, logs=node.logs).bound
    testimony = Said(bound=bound, event_logs=logs, exporter=b"", spki_sha256=b"")
    given = received(node, record=record, challenge=challenge.to_bytes(), testimony=testimony)
    assert code_of(given, asked) == "BINDING_MISMATCH"


def test_evidence_for_another_purpose_is_refused(node: SoftNode) -> None:
    asked = question(node.policy())
    challenge, record = asked.challenge(ChallengeRequest.parse(node.witness().identity()))
    logs = node.logs.to_bytes()
    request = exchanged(challenge.to_bytes(), logs)
    context = BindingContext(purpose=Purpose.JOIN, cluster_id=node.cluster_id, request=request, **HERE)
    bound = answer(node.tpm, challenge, context, ek=node.tpm.ek, ak=node.tpm.ak, logs=node.logs).bound
    testimony = Said(bound=bound, event_logs=logs, **HERE)
    given = received(node, record=record, challenge=challenge.to_bytes(), testimony=testimony)
    assert code_of(given, asked) == "BINDING_MISMATCH"


def test_a_challenge_that_was_changed_on_its_way_is_refused(node: SoftNode) -> None:
    given = received(node)
    assert code_of(replace(given, challenge=given.challenge + b"\xa0\x06\x01"), question(node.policy())) == (
        "BINDING_MISMATCH"
    )


def test_logs_that_were_changed_on_their_way_are_refused(node: SoftNode) -> None:
    given = received(node)
    shorter = replace(node.logs, userspace=b"").to_bytes()
    changed = replace(given, testimony=replace(given.testimony, event_logs=shorter))
    assert code_of(changed, question(node.policy())) == "BINDING_MISMATCH"


def test_an_answer_after_its_time_is_refused(node: SoftNode) -> None:
    given = received(node)
    assert code_of(replace(given, now=given.now + timedelta(minutes=2)), question(node.policy())) == "CHALLENGE_EXPIRED"


def test_the_tpm_of_another_node_is_refused(node: SoftNode) -> None:
    assert code_of(received(node), question(node.policy(name="w-2"))) == "NODE_NAME_MISMATCH"


def test_a_genuine_machine_that_nobody_enrolled_is_refused(node: SoftNode) -> None:
    """Diversion: the caller is led to another machine with the same boot (S3)."""
    asked = question(SoftNode().policy())
    assert code_of(received(node, asked=asked), asked) == "IDENTITY_UNKNOWN"


def test_another_boot_is_refused_with_what_deviates(node: SoftNode) -> None:
    asked = question(node.policy(boot="deb13-cmdline"))
    given = received(node, asked=asked)
    assert code_of(given, asked) == "PCR_MISMATCH"
    shown = proven_machine(given, asked)
    assert shown is not None
    assert shown.ek_sha256 == node.tpm.ek.public.spki_sha256()


def test_nothing_is_shown_of_a_machine_that_proved_nothing(node: SoftNode) -> None:
    given = received(node, channel=ELSEWHERE)
    assert proven_machine(given, question(node.policy())) is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"locked_to": None}, "NODELOCK_OPEN", id="a node that is locked to no cluster"),
        pytest.param({"locked_to": b"d" * 32}, "NODELOCK_OTHER_CLUSTER", id="a node that is locked to another cluster"),
        pytest.param({"cluster_id": b"d" * 32}, "BINDING_MISMATCH", id="a node that believes to be in another cluster"),
    ],
)
def test_a_node_of_no_or_another_cluster_is_refused(changes: dict[str, Any], code: str) -> None:
    node = SoftNode(**changes)
    assert code_of(received(node), question(node.policy())) == code


def test_a_lock_that_no_log_explains_is_refused(node: SoftNode) -> None:
    node.logs = replace(node.logs, nodelock=b"")
    assert code_of(received(node), question(node.policy())) == "NODELOCK_FOREIGN"


def test_a_testimony_survives_the_wire(node: SoftNode) -> None:
    given = received(node).testimony
    assert Said.parse(given.to_bytes()) == given
    assert given.logs() == EventLogs(
        firmware=node.boot.firmware,
        userspace=node.boot.userspace,
        nodelock=node.logs.nodelock,
        command_line=node.boot.command_line,
    )
