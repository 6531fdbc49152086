# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S1: evidence that was good once is sent again: to the same service, to another, to a restarted one, and too late."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeStore
from ansible_collections.attested.kubernetes.tests.support.exchange import NOW, Exchange
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of, refused
from ansible_collections.attested.kubernetes.tests.support.service_bed import Attack, Machine, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

    Machines = Callable[..., Machine]

THREAT = Threat(
    id="S1",
    title="Replay of old evidence",
    case="RA-TLS variants without freshness",
    bed="api",
    stops=(
        ("evidence/verify.py step 1", "CHALLENGE_UNKNOWN"),
        ("evidence/verify.py step 1", "CHALLENGE_EXPIRED"),
        ("evidence/verify.py step 2", "ACTIVATION_NOT_PROVEN"),
    ),
)


def test_replayed_to_the_same_service(bed: ServiceBed, machines: Machines) -> None:
    machine = machines()
    recorded = machine.attack(Attack()).answer.bound
    replayed = Attack(bound=lambda _unused: recorded)
    assert refused(lambda: machine.attack(replayed), bed)["reason"] == "CHALLENGE_UNKNOWN"


def test_replayed_to_another_replica_and_to_a_restarted_one(replica: ServiceBed, machines: Machines) -> None:
    """No replica keeps a challenge of another, and none survives its service."""
    machine = machines()
    recorded = machine.attack(Attack()).answer.bound
    replayed = Attack(bound=lambda _unused: recorded)
    machine.bed = replica
    assert machine.attack(Attack()).response
    assert refused(lambda: machine.attack(replayed), replica)["reason"] == "CHALLENGE_UNKNOWN"
    replica.kill("key")
    replica.start_key_service()
    assert refused(lambda: machine.attack(replayed), replica)["reason"] == "CHALLENGE_UNKNOWN"


def test_the_same_answer_twice(exchange: Exchange) -> None:
    """A challenge is forgotten with its first answer, whatever becomes of it."""
    store = ChallengeStore()
    challenge, record = exchange.challenged()
    store.add(record, now=NOW)
    given = exchange.answered(challenge)
    assert exchange.verified(given, store.take(given.bound.challenge_id)).identity.node_name == "w-1"
    assert code_of(lambda: store.take(given.bound.challenge_id)) == "CHALLENGE_UNKNOWN"


def test_an_old_answer_under_the_new_challenges_id(exchange: Exchange) -> None:
    """With the id changed the secret is still the old one."""
    earlier, _unused = exchange.challenged()
    challenge, record = exchange.challenged()
    assert exchange.verified(exchange.answered(challenge), record)
    given = exchange.answered(earlier)
    assert code_of(lambda: exchange.verified(given, record)) == "CHALLENGE_UNKNOWN"
    renamed = replace(given.bound, challenge_id=challenge.id)
    assert code_of(lambda: exchange.verified(given, record, bound=renamed)) == "ACTIVATION_NOT_PROVEN"


@pytest.mark.parametrize("seconds", [60, 3600])
def test_after_its_time(exchange: Exchange, seconds: int) -> None:
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    assert exchange.verified(given, record, now=NOW + timedelta(seconds=59))
    late = NOW + timedelta(seconds=seconds)
    assert code_of(lambda: exchange.verified(given, record, now=late)) == "CHALLENGE_EXPIRED"
