# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S57: a thousand TPMs of software, each with a refusal of its own, to push out what an admin is to see."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import BoundEvidence
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import REQUEST
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_attempts import (
    Arrival,
    AttemptWriter,
    RefusalReporter,
    WaitingQueue,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import ATTEMPTS, IDENTITIES
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import answer_of
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.support.tpm import SteppingClock

THREAT = Threat(
    id="S57",
    title="History pushed out by strangers",
    case="CWE-779",
    bed="bytes",
    stops=(
        ("keyservice/join_attempts.py", "BINDING_MISMATCH"),
        ("keyservice/join_attempts.py", ""),
    ),
)

FLOOD = 150
"""More than there are places."""
ROUNDS = 20


@pytest.fixture
def made() -> Bed:
    """The decisions of a key service in this process, one enrolled machine, and the real writer of attempts."""
    return Bed()


def refused(made: Bed, tpm: SoftTpm, service: Any) -> str:
    """Let a machine prove its key over another channel's exporter, as anybody can with a TPM of his own."""
    enrolled, made.tpm = made.tpm, tpm
    try:
        channel, request, binding = made.exchange()
    finally:
        made.tpm = enrolled
    message = message_class(REQUEST)(correlation_id="c-1")
    message.release.channel.CopyFrom(replace(channel, exporter=b"o" * 32).to_message())
    message.release.request = request
    message.release.binding = BoundEvidence.parse(binding).to_bytes()
    with pytest.raises(AttestedError) as caught:
        answer_of(service.answer(message.SerializeToString()))
    return caught.value.code


def test_attempts_of_enrolled_machines_stay(made: Bed) -> None:
    """They prove their keys and are refused for a reason that is not about who they are."""
    writer = AttemptWriter(made.gateway, made.gateway, clock=SteppingClock())
    service = made.service()
    service._reporter = RefusalReporter(writer)
    assert refused(made, made.tpm, service) == "BINDING_MISMATCH"
    writer.run_once(0.01)
    for _unused in range(FLOOD):
        assert refused(made, SoftTpm(made.boot.pcrs), service) == "BINDING_MISMATCH"
        writer.run_once(0.01)
    for _unused in range(ROUNDS):
        writer.run_once(0.01)
    kept = {one["metadata"]["name"]: one["status"] for one in made.gateway.objects(ATTEMPTS)}
    ours = f"{made.identity.name}-binding-mismatch"
    assert kept[ours]["nodeName"] == "w-1"
    assert len(kept) < FLOOD


def test_an_enrolled_machine_is_written_down_during_a_flood(made: Bed) -> None:
    """Neither the queue nor what waits to be written is full of strangers."""
    writer = AttemptWriter(made.gateway, made.gateway, clock=SteppingClock())
    service = made.service()
    service._reporter = RefusalReporter(writer)
    for _unused in range(2 * FLOOD):
        refused(made, SoftTpm(made.boot.pcrs), service)
    assert refused(made, made.tpm, service) == "BINDING_MISMATCH"
    for _unused in range(ROUNDS):
        writer.run_once(0.01)
    names = {one["metadata"]["name"] for one in made.gateway.objects(ATTEMPTS)}
    assert f"{made.identity.name}-binding-mismatch" in names


def test_machines_of_one_address_do_not_push_others_out_of_the_queue() -> None:
    """The flooder's own oldest go, on the way to the API as well as there."""
    gateway, now = FakeGateway(), datetime(2026, 11, 21, 12, tzinfo=UTC)
    queue = WaitingQueue(gateway, gateway, clock=SteppingClock())
    queue.note(Arrival(ek_sha256="ab" * 32, claims="w-7", at=now, source="192.0.2.7"))
    for number in range(FLOOD):
        moment = now + timedelta(seconds=number)
        queue.note(Arrival(ek_sha256=f"{number:020x}" + "0" * 44, claims="", at=moment, source="198.51.100.1"))
        if number % 20 == 19:
            queue.run_once(0.01)
    for _unused in range(ROUNDS):
        queue.run_once(0.01)
    waiting = {one["metadata"]["name"] for one in gateway.objects(IDENTITIES)}
    assert f"ek-{'ab' * 10}" in waiting
    assert len(waiting) <= 100
