# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refused attempts: one object a machine and reason, capped and aged, written without anybody waiting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_attempts import (
    Attempt,
    AttemptWriter,
    is_enrolled,
    plan_attempts,
    render_event,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import ATTEMPTS
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.tpm import SteppingClock

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
EK = "ab" * 32
NAME = f"ek-{EK[:20]}"
NEXT = "ansible-playbook attested.kubernetes.policy"


def attempt(reason: str = "PCR_MISMATCH", *, ek: str = EK, node: str = "w-1", **changes: Any) -> Attempt:
    good = {"message": "expected PCR 9 as allowed, got another", "at": NOW, "correlation_id": "c1"}
    return Attempt(reason=reason, ek_sha256=ek, node_name=node, **{**good, **changes})


def stored(name: str, *, reason: str = "PCR_MISMATCH", last: datetime = NOW, **changes: Any) -> dict[str, Any]:
    status = {"machine": "m", "reason": reason, "count": 1, "firstSeen": said(last), "lastSeen": said(last), **changes}
    return {"metadata": {"name": name, "resourceVersion": "7", "uid": f"uid-{name}"}, "status": status}


def said(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_machine_and_a_reason_make_one_object() -> None:
    (write,) = plan_attempts([], [attempt()], now=NOW).writes
    assert write.document["metadata"]["name"] == f"{NAME}-pcr-mismatch"
    assert write.document["status"] == {
        "machine": NAME,
        "ekSha256": EK,
        "nodeName": "w-1",
        "reason": "PCR_MISMATCH",
        "message": "expected PCR 9 as allowed, got another",
        "next": "ansible-playbook attested.kubernetes.policy",
        "correlationId": "c1",
        "count": 1,
        "firstSeen": "2026-11-21T12:00:00Z",
        "lastSeen": "2026-11-21T12:00:00Z",
    }


def test_strangers_share_one_object_a_reason() -> None:
    claims = [attempt("ACTIVATION_NOT_PROVEN", ek="", node="") for _unused in range(2)]
    assert {one.name for one in claims} == {"stranger-activation-not-proven"}
    (write,) = plan_attempts([], [claims[0].after(claims[1])], now=NOW).writes
    assert (write.document["status"]["machine"], write.document["status"]["count"]) == ("stranger", 2)
    assert "ekSha256" not in write.document["status"]


def test_what_is_known_goes_on_from_its_count_and_its_first_time() -> None:
    earlier = stored(f"{NAME}-pcr-mismatch", last=NOW - timedelta(hours=1), count=4)
    (write,) = plan_attempts([earlier], [attempt(count=2)], now=NOW).writes
    status = write.document["status"]
    assert (status["count"], status["firstSeen"], status["lastSeen"]) == (
        6,
        "2026-11-21T11:00:00Z",
        "2026-11-21T12:00:00Z",
    )
    assert (write.revision, write.uid) == ("7", f"uid-{NAME}-pcr-mismatch")


def test_old_attempts_go() -> None:
    found = [stored("old", last=NOW - timedelta(days=15)), stored("recent", last=NOW - timedelta(days=13))]
    assert plan_attempts(found, [], now=NOW).drops == ("old",)


def test_the_oldest_goes_when_there_are_too_many() -> None:
    found = [stored(f"a{number}", last=NOW - timedelta(minutes=number)) for number in range(1, 4)]
    plan = plan_attempts(found, [attempt()], now=NOW, limit=3)
    assert plan.drops == ("a3",)
    assert len(plan.writes) == 1


def ours(name: str, **changes: Any) -> dict[str, Any]:
    return stored(name, nodeName="w-1", **changes)


def theirs(number: int) -> Attempt:
    """An attempt of a machine that nobody enrolled, which may be refused for any reason."""
    return attempt("BINDING_MISMATCH", ek=f"{number:020x}" + "0" * 44, node="", at=NOW + timedelta(seconds=number))


def test_machines_that_nobody_enrolled_drive_out_each_other_first() -> None:
    """Anybody may make endorsement keys; he must not make room by the attempts of machines that are ours."""
    found = [stored(f"u{number}") for number in range(3)]
    found.append(ours("ours", last=NOW - timedelta(days=1)))
    plan = plan_attempts(found, [theirs(1)], now=NOW, limit=3)
    assert plan.drops == ("u0", "u1")
    assert len(plan.writes) == 1


def test_machines_that_nobody_enrolled_have_a_part_of_the_places() -> None:
    """Also where all others are free; enrolled ones may have all."""
    plan = plan_attempts([], [theirs(number) for number in range(50)], now=NOW)
    assert [one.attempt.ek_sha256 for one in plan.writes] == [f"{number:020x}" + "0" * 44 for number in range(20, 50)]
    many = [ours(f"a{number:03}", last=NOW - timedelta(minutes=number)) for number in range(100)]
    plan = plan_attempts(many, [theirs(1)], now=NOW)
    assert (plan.writes, plan.drops) == ((), ())


@pytest.mark.parametrize(
    ("machine", "node", "known"),
    [
        pytest.param(NAME, "w-1", True, id="an enrolled machine"),
        pytest.param("stranger", "", True, id="the one object of all strangers"),
        pytest.param(NAME, "", False, id="a machine that nobody knows"),
        pytest.param(NAME, NAME, False, id="a machine that waits, under its own name"),
    ],
)
def test_whose_attempts_are_kept_before_others(machine: str, node: str, known: bool) -> None:
    assert is_enrolled(machine, node) is known


@pytest.mark.parametrize("length", [pytest.param(10**6, id="a megabyte of words")])
def test_texts_are_cut(length: int) -> None:
    long = attempt(message="x" * length, correlation_id="y" * length)
    (write,) = plan_attempts([], [long], now=NOW).writes
    assert len(write.document["status"]["message"]) == 1000
    assert len(write.document["status"]["correlationId"]) == 64
    assert len(render_event(write, "uid")["message"]) == 1000


def test_what_to_run_next_outlives_a_cut() -> None:
    """The sentence of a refused boot ends with it; events of many changed files are longer than an object may be."""
    told = "; ".join(["expected a boot that a profile allows", *["PCR 9: got another"] * 100, f"next: {NEXT}"])
    (write,) = plan_attempts([], [attempt(message=told)], now=NOW).writes
    status, event = write.document["status"], render_event(write, "uid")
    assert status["next"] == NEXT
    assert status["message"].startswith("expected a boot that a profile allows; PCR 9")
    for text in (status["message"], event["message"]):
        assert (len(text), text.count(f"; next: {NEXT}"), text.endswith(NEXT)) == (1000, 1, True)


def test_an_event_names_machine_reason_and_count() -> None:
    (write,) = plan_attempts([], [attempt(count=3)], now=NOW).writes
    event = render_event(write, "uid-1")
    assert (event["reason"], event["type"], event["count"]) == ("PcrMismatch", "Warning", 3)
    assert event["message"] == (
        f"w-1 ({NAME}) was refused, PCR_MISMATCH: expected PCR 9 as allowed, got another; next: {NEXT}"
    )
    assert event["involvedObject"]["uid"] == "uid-1"


# ---- the writer


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def writer(gateway: FakeGateway) -> AttemptWriter:
    return AttemptWriter(gateway, gateway, clock=SteppingClock())


def counts(gateway: FakeGateway) -> dict[str, int]:
    return {one["metadata"]["name"]: one["status"]["count"] for one in gateway.objects(ATTEMPTS)}


def recent(**changes: Any) -> Attempt:
    return attempt(at=SteppingClock().now(), **changes)


def test_many_refusals_are_one_write_and_one_event(gateway: FakeGateway, writer: AttemptWriter) -> None:
    for _unused in range(50):
        writer.note(recent())
    writer.run_once(0)
    assert counts(gateway) == {f"{NAME}-pcr-mismatch": 50}
    assert gateway.writes == 1
    assert [event["count"] for event in gateway.recorded.values()] == [50]
    writer.note(recent())
    writer.run_once(0)
    assert counts(gateway) == {f"{NAME}-pcr-mismatch": 51}
    assert [event["count"] for event in gateway.recorded.values()] == [51]


def test_a_flood_is_lost_and_nobody_waits(gateway: FakeGateway, writer: AttemptWriter) -> None:
    for number in range(10_000):
        writer.note(recent(ek=f"{number:020x}" + "0" * 44))
    writer.run_once(0)
    assert gateway.writes == 20
    for _unused in range(20):
        writer.run_once(0)
    assert len(counts(gateway)) <= 100


def test_without_the_api_attempts_wait_for_the_next_round(gateway: FakeGateway, writer: AttemptWriter) -> None:
    gateway.down = True
    writer.note(recent())
    with pytest.raises(AttestedError) as caught:
        writer.run_once(0)
    assert caught.value.code == "API_UNAVAILABLE"
    gateway.down = False
    writer.run_once(0)
    assert counts(gateway) == {f"{NAME}-pcr-mismatch": 1}


def test_another_control_plane_may_write_the_same_object(gateway: FakeGateway, writer: AttemptWriter) -> None:
    other = AttemptWriter(gateway, gateway, clock=SteppingClock())

    def write_first() -> None:
        other.note(recent())
        other.run_once(0)

    gateway.before_write = write_first
    writer.note(recent())
    writer.run_once(0)
    writer.run_once(0)
    assert counts(gateway) == {f"{NAME}-pcr-mismatch": 2}


def test_nothing_to_write_writes_nothing(gateway: FakeGateway, writer: AttemptWriter) -> None:
    writer.run_once(0)
    assert gateway.writes == 0


def test_a_second_key_is_told_beside_the_machine_that_it_belongs_to() -> None:
    (write,) = plan_attempts([], [attempt(ek="cd" * 32, identity=NAME)], now=NOW).writes
    assert write.document["metadata"]["name"] == f"{NAME}-pcr-mismatch"
    assert (write.document["status"]["machine"], write.document["status"]["ekSha256"]) == (NAME, "cd" * 32)


def test_a_stranger_stays_one_whatever_identity_is_told() -> None:
    assert attempt(ek="", identity=NAME).machine == "stranger"


def test_a_flood_leaves_half_of_the_queue_to_enrolled_machines(gateway: FakeGateway, writer: AttemptWriter) -> None:
    for number in range(300):
        writer.note(theirs(number))
    writer.note(recent())
    writer.run_once(0)
    assert writer._waiting.qsize() == 0
    assert sum(not one.is_known for one in writer._pending.values()) <= 30
    for _unused in range(5):
        writer.run_once(0)
    assert counts(gateway)[f"{NAME}-pcr-mismatch"] == 1
