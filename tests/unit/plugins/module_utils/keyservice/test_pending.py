# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of unknown machines: at most a hundred, the oldest go, and nobody waits for its writing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_attempts import (
    CLAIM,
    SOURCE,
    Arrival,
    WaitingQueue,
    plan_waiting,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import LivePolicy
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.policy_site import GivenPolicy
from ansible_collections.attested.kubernetes.tests.support.tpm import SteppingClock

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
EK = "ab" * 32
NAME = f"ek-{EK[:20]}"


def arrival(ek: str = EK, claims: str = "w-7") -> Arrival:
    return Arrival(ek_sha256=ek, claims=claims, at=NOW)


def waiting(number: int) -> dict[str, Any]:
    return {"metadata": {"name": f"ek-{number}", "creationTimestamp": f"2026-11-21T{number:02}:00:00Z"}}


def test_a_machine_waits_under_its_own_name() -> None:
    (document,) = plan_waiting([], [arrival()]).creates
    assert document["metadata"] == {"name": NAME, "annotations": {CLAIM: "w-7"}}
    assert document["spec"] == {
        "ekSha256": EK,
        "nodeName": NAME,
        "role": "worker",
        "admission": "Pending",
        "knownBy": "queue: proved its key 2026-11-21T12:00:00Z, nobody vouches for it",
    }


def test_a_machine_that_claims_nothing_waits_too() -> None:
    (document,) = plan_waiting([], [arrival(claims="")]).creates
    assert "annotations" not in document["metadata"]


def test_a_machine_that_waits_already_is_not_made_again() -> None:
    plan = plan_waiting([{"metadata": {"name": NAME}}], [arrival(), arrival()])
    assert (plan.creates, plan.drops) == ((), ())


def test_the_oldest_make_room() -> None:
    plan = plan_waiting([waiting(3), waiting(1), waiting(2)], [arrival()], limit=3)
    assert (len(plan.creates), plan.drops) == (1, ("ek-1",))


@pytest.mark.parametrize(
    ("found", "drops"),
    [
        pytest.param(99, (), id="the hundredth finds a place"),
        pytest.param(100, ("ek-0",), id="for one more the oldest goes"),
        pytest.param(103, ("ek-0", "ek-1", "ek-2", "ek-3"), id="what is too many goes too"),
    ],
)
def test_a_hundred_machines_wait_at_most(found: int, drops: tuple[str, ...]) -> None:
    """The number that docs/machines.md says."""
    times = [f"2026-11-21T12:{number // 60:02}:{number % 60:02}Z" for number in range(found)]
    there = [{"metadata": {"name": f"ek-{number}", "creationTimestamp": at}} for number, at in enumerate(times)]
    plan = plan_waiting(there[::-1], [arrival()])
    assert (len(plan.creates), plan.drops) == (1, drops)


def test_a_flood_keeps_the_limit() -> None:
    flood = [arrival(f"{number:020x}" + "0" * 44) for number in range(50)]
    plan = plan_waiting([waiting(1)], flood, limit=10)
    assert (len(plan.creates), plan.drops) == (10, ("ek-1",))


def test_the_source_that_has_the_most_makes_room() -> None:
    """Its oldest, whether it waits at the API already or comes now."""
    found = [waiting(1), waiting(2), waiting(3)]
    for one, source in zip(found, ("quiet", "flood", "flood"), strict=True):
        one["metadata"]["annotations"] = {SOURCE: source}
    coming = [
        replace(arrival(f"{number:020x}" + "0" * 44), source=source) for number, source in enumerate(("flood", "other"))
    ]
    plan = plan_waiting(found, coming, limit=3)
    assert plan.drops == ("ek-2", "ek-3")
    assert [one["metadata"]["annotations"][SOURCE] for one in plan.creates] == ["flood", "other"]


def test_before_they_are_written_too(gateway: FakeGateway) -> None:
    """The queue in memory is shared by source as well."""
    queue = WaitingQueue(gateway, gateway, clock=SteppingClock())
    queue.note(replace(arrival(), source="quiet"))
    for number in range(100):
        queue.note(replace(arrival(f"{number:020x}" + "0" * 44), source="flood"))
    assert len(queue._arrivals) == 64
    queue.run_once(0)
    assert NAME in {one["metadata"]["name"] for one in gateway.objects(IDENTITIES)}


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def queue(gateway: FakeGateway) -> WaitingQueue:
    return WaitingQueue(gateway, gateway, clock=SteppingClock())


def test_a_machine_in_the_queue_is_refused_as_waiting(gateway: FakeGateway, queue: WaitingQueue) -> None:
    queue.note(arrival())
    queue.run_once(0)
    with pytest.raises(AttestedError) as caught:
        LivePolicy(gateway, GivenPolicy(), clock=SystemClock()).identity_for(EK)
    assert caught.value.code == "IDENTITY_PENDING"


def test_who_was_approved_meanwhile_stays_so(gateway: FakeGateway, queue: WaitingQueue) -> None:
    approved = plan_waiting([], [arrival()]).creates[0] | {"spec": {"ekSha256": EK, "admission": "Approved"}}
    gateway.create(IDENTITIES, approved)
    queue.note(arrival())
    queue.run_once(0)
    assert gateway.objects(IDENTITIES)[0]["spec"]["admission"] == "Approved"


def test_nobody_waits_for_a_full_queue(gateway: FakeGateway, queue: WaitingQueue) -> None:
    for number in range(1000):
        queue.note(arrival(f"{number:020x}" + "0" * 44))
    for _unused in range(200):
        queue.run_once(0)
    assert len(gateway.objects(IDENTITIES)) == 64


def test_a_queue_that_cannot_be_written_says_so(gateway: FakeGateway, queue: WaitingQueue) -> None:
    gateway.down = True
    queue.note(arrival())
    with pytest.raises(AttestedError) as caught:
        queue.run_once(0)
    assert caught.value.code == "API_UNAVAILABLE"
