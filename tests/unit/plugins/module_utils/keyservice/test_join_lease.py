# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose turn it is to join as a control plane: decided from one Lease, taken and freed by compare-and-set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError, AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_lease import (
    CONTROL_PLANE_LABEL,
    JoinTurns,
    Turn,
    has_joined,
    take_turn,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, NodeIdentity, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.release_bed import StandingClock

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FIRST = NodeIdentity(ek_sha256="ab" * 32, node_name="cp-2", role=Role.CONTROL_PLANE, admission=Admission.APPROVED)
OTHER = "ek-other"


def turn(holder: str = OTHER, *, renewed: datetime | None = NOW) -> Turn:
    return Turn(holder=holder, renewed=renewed, acquired="2026-11-21T11:00:00.000000Z", changes=3, revision="7")


def test_the_first_turn_of_a_cluster_creates_the_lease() -> None:
    assert take_turn(None, identity=FIRST.name, now=NOW) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "attested-control-plane-join", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": FIRST.name,
            "acquireTime": "2026-11-21T12:00:00.000000Z",
            "renewTime": "2026-11-21T12:00:00.000000Z",
            "leaseDurationSeconds": 600,
            "leaseTransitions": 0,
        },
    }


def test_ones_own_turn_is_renewed() -> None:
    lease = take_turn(turn(FIRST.name, renewed=NOW - 500 * SECOND), identity=FIRST.name, now=NOW)
    assert lease["metadata"]["resourceVersion"] == "7"
    assert lease["spec"] == {
        "holderIdentity": FIRST.name,
        "acquireTime": "2026-11-21T11:00:00.000000Z",
        "renewTime": "2026-11-21T12:00:00.000000Z",
        "leaseDurationSeconds": 600,
        "leaseTransitions": 3,
    }


@pytest.mark.parametrize(
    "free",
    [
        pytest.param(turn(""), id="nobody holds it"),
        pytest.param(turn(renewed=NOW - 600 * SECOND), id="its life is over"),
        pytest.param(turn(renewed=None), id="nothing says since when"),
        pytest.param(turn(renewed=NOW + 600 * SECOND), id="taken in a future that no clock explains"),
    ],
)
def test_a_turn_that_is_free_or_over_is_taken(free: Turn) -> None:
    lease = take_turn(free, identity=FIRST.name, now=NOW)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == (FIRST.name, 4)
    assert lease["spec"]["acquireTime"] == lease["spec"]["renewTime"] == "2026-11-21T12:00:00.000000Z"
    assert lease["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    ("renewed", "left", "pause"),
    [
        pytest.param(NOW, "600 s", 20.0, id="just now"),
        pytest.param(NOW - 590 * SECOND, "10 s", 10.0, id="almost over"),
        pytest.param(NOW + 599 * SECOND, "1199 s", 20.0, id="by a clock that is ahead"),
    ],
)
def test_a_turn_of_another_one_is_busy(renewed: datetime, left: str, pause: float) -> None:
    with pytest.raises(AttestedError) as caught:
        take_turn(turn(renewed=renewed), identity=FIRST.name, now=NOW)
    assert caught.value.code == "CONTROL_PLANE_JOIN_BUSY"
    assert f"{OTHER} does and has {left} left" in caught.value.message
    assert caught.value.retry_after_seconds == pause


def test_what_a_lease_does_not_say_is_empty() -> None:
    bare = Turn.parse({"metadata": {"resourceVersion": "1"}})
    assert bare == Turn(holder="", renewed=None, acquired="", changes=0, revision="1")
    spec = {"holderIdentity": OTHER, "renewTime": "yesterday"}
    assert Turn.parse({"metadata": {"resourceVersion": "1"}, "spec": spec}).renewed is None


LABELLED = {"metadata": {"labels": {CONTROL_PLANE_LABEL: ""}}}


@pytest.mark.parametrize(
    ("identity", "node", "joined"),
    [
        pytest.param({"status": {"phase": "Joined"}}, LABELLED, True, id="joined and labelled"),
        pytest.param({"status": {"phase": "Admitted"}}, LABELLED, False, id="not joined"),
        pytest.param({}, LABELLED, False, id="no status"),
        pytest.param({"status": {"phase": "Joined"}}, {"metadata": {}}, False, id="no label"),
        pytest.param({"status": {"phase": "Joined"}}, None, False, id="no node"),
        pytest.param(None, LABELLED, False, id="no identity"),
    ],
)
def test_who_has_joined(identity: Any, node: Any, joined: bool) -> None:
    assert has_joined(identity, node) is joined


class Bed:
    """An API in memory with one further control plane."""

    def __init__(self) -> None:
        self.api = FakeGateway(render_identity(FIRST))
        self.clock = StandingClock()
        self.freed: list[str] = []
        self.turns = JoinTurns(self.api, clock=self.clock, freed=self.freed.append)

    def holder(self) -> str:
        return str(self.api.leases["attested-control-plane-join"]["spec"].get("holderIdentity", ""))

    def join(self) -> None:
        self.api.labels["cp-2"] = {CONTROL_PLANE_LABEL: ""}
        revision = self.api.objects("nodeidentities")[0]["metadata"]["resourceVersion"]
        self.api.patch_status("nodeidentities", FIRST.name, status={"phase": "Joined"}, revision=revision)


@pytest.fixture
def bed() -> Bed:
    return Bed()


def code(action: Any) -> str:
    with pytest.raises(AttestedError) as caught:
        action()
    return caught.value.code


def test_turns_follow_each_other(bed: Bed) -> None:
    bed.turns.settle()
    bed.turns.take(FIRST.name)
    bed.turns.take(FIRST.name)
    assert code(lambda: bed.turns.take(OTHER)) == "CONTROL_PLANE_JOIN_BUSY"
    bed.turns.settle()
    assert (bed.holder(), bed.freed) == (FIRST.name, [])
    bed.join()
    bed.turns.settle()
    bed.turns.settle()
    assert (bed.holder(), bed.freed) == ("", [FIRST.name])
    bed.turns.take(OTHER)
    assert bed.holder() == OTHER


def test_a_machine_that_went_away_keeps_its_turn_for_its_life_and_no_longer(bed: Bed) -> None:
    bed.turns.take(FIRST.name)
    bed.clock.sleep(599)
    assert code(lambda: bed.turns.take(OTHER)) == "CONTROL_PLANE_JOIN_BUSY"
    bed.clock.sleep(1)
    bed.turns.take(OTHER)
    assert bed.holder() == OTHER


def test_a_turn_of_an_identity_that_is_gone_is_left_to_end(bed: Bed) -> None:
    bed.turns.take(OTHER)
    bed.turns.settle()
    assert (bed.holder(), bed.freed) == (OTHER, [])


@pytest.mark.parametrize("begun", [False, True], ids=["created", "replaced"])
def test_of_two_key_services_one_is_faster(bed: Bed, begun: bool) -> None:
    if begun:
        bed.turns.take(FIRST.name)
        bed.clock.sleep(600)
    bed.api.before_write = lambda: bed.turns.take(OTHER)
    assert code(lambda: bed.turns.take(FIRST.name)) == "API_CONFLICT"
    assert bed.holder() == OTHER


def test_a_turn_that_was_taken_anew_is_not_freed(bed: Bed) -> None:
    """Between the look and the write another machine got it."""
    bed.turns.take(FIRST.name)
    bed.join()
    bed.clock.sleep(600)
    bed.api.before_write = lambda: bed.turns.take(OTHER)
    assert code(bed.turns.settle) == "API_CONFLICT"
    assert (bed.holder(), bed.freed) == (OTHER, [])


def test_the_round_goes_on_until_the_api_is_away(bed: Bed) -> None:
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        bed.api.down = len(looks) == 2

    bed.clock.sleep = sleep  # type: ignore[method-assign]
    with pytest.raises(ApiError):
        bed.turns.run_once()
    assert looks == [15.0, 15.0]
