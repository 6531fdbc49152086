# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may be taken out of etcd: tables over members that answer, are silent, or only listen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, EtcdError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_members import (
    Member,
    majority,
    plan_removal,
    remove_member,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock


def member(number: int, *, healthy: bool = True, learner: bool = False, name: str | None = None) -> Member:
    return Member(
        member_id=number,
        name=f"cp-{number}" if name is None else name,
        peer_urls=(f"https://10.0.0.1{number}:2380",),
        client_urls=(f"https://10.0.0.1{number}:2379",),
        is_learner=learner,
        healthy=healthy,
    )


def cluster(*states: str) -> list[Member]:
    """Return members by what they are: "up", "down", "learner"."""
    return [
        member(number, healthy=state == "up", learner=state == "learner")
        for number, state in enumerate(states, start=1)
    ]


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(voters: int, needed: int) -> None:
    assert majority(voters) == needed


@pytest.mark.parametrize(
    ("states", "left"),
    [
        pytest.param(("down", "up", "up"), ["cp-2", "cp-3"], id="the first of three is gone"),
        pytest.param(("up", "up", "up"), ["cp-2", "cp-3"], id="one that still runs"),
        pytest.param(("up", "up"), ["cp-2"], id="one of two, while both run"),
        pytest.param(
            ("down", "down", "up", "up", "up"), ["cp-2", "cp-3", "cp-4", "cp-5"], id="one of two lost of five"
        ),
        pytest.param(("down", "up", "up", "learner"), ["cp-2", "cp-3", "cp-4"], id="while another one is learning"),
        pytest.param(("learner", "up", "up"), ["cp-2", "cp-3"], id="a learner"),
        pytest.param(("learner", "up", "down"), ["cp-2", "cp-3"], id="a learner has no vote to lose"),
    ],
)
def test_who_may_go(states: tuple[str, ...], left: list[str]) -> None:
    plan = plan_removal(cluster(*states), name="cp-1")
    assert plan
    assert [one.name for one in plan.left] == left


@pytest.mark.parametrize(
    ("states", "code", "words"),
    [
        pytest.param(("up",), "ETCD_LAST_MEMBER", "cp-1 is the only one", id="the only one"),
        pytest.param(("up", "learner"), "ETCD_LAST_MEMBER", "only one", id="the only one with a vote"),
        pytest.param(("down", "up"), "ETCD_QUORUM_LOST", "expected 2 of 2", id="the other one of two is gone"),
        pytest.param(("up", "down", "down"), "ETCD_QUORUM_LOST", "cp-2, cp-3", id="two of three are gone"),
        pytest.param(
            ("up", "up", "down"), "ETCD_QUORUM_AT_RISK", "without cp-1", id="a live one while another is gone"
        ),
        pytest.param(
            ("up", "up", "up", "down", "down"),
            "ETCD_QUORUM_AT_RISK",
            "3 of the 4",
            id="a live one of five with two gone",
        ),
    ],
)
def test_who_may_not(states: tuple[str, ...], code: str, words: str) -> None:
    with pytest.raises(AttestedError) as caught:
        plan_removal(cluster(*states), name="cp-1")
    assert caught.value.code == code
    assert words in caught.value.message


def test_nobody_of_that_name_is_nothing_to_do() -> None:
    assert not plan_removal(cluster("up", "up"), name="cp-9", address="10.0.0.19")


def test_a_member_that_never_started_is_known_by_its_address() -> None:
    members = [*cluster("up", "up", "up"), member(4, name="", healthy=False, learner=True)]
    plan = plan_removal(members, name="cp-4", address="10.0.0.14")
    assert plan.member == members[3]
    assert not plan_removal(members, name="cp-4")


def test_a_name_that_two_members_have_is_refused() -> None:
    twin = member(4, name="cp-1")
    with pytest.raises(AttestedError) as caught:
        plan_removal([*cluster("up", "up", "up"), twin], name="cp-1")
    assert caught.value.code == "ETCD_MEMBER_AMBIGUOUS"


class Etcd:
    """etcd that lists its members and takes one out, unless it is told to keep it."""

    def __init__(self, members: list[Member], *, keeps: bool = False) -> None:
        self.listed = members
        self.removed: list[int] = []
        self.keeps = keeps

    def members(self) -> tuple[Member, ...]:
        return tuple(self.listed)

    def remove(self, member: Member) -> None:
        self.removed.append(member.member_id)
        if not self.keeps:
            self.listed = [one for one in self.listed if one != member]


def test_it_is_taken_out_once() -> None:
    etcd = Etcd(cluster("down", "up", "up"))
    assert remove_member(etcd, clock=FakeClock(), name="cp-1")
    assert not remove_member(etcd, clock=FakeClock(), name="cp-1")
    assert etcd.removed == [1]


def test_check_mode_decides_and_removes_nobody() -> None:
    etcd = Etcd(cluster("down", "up", "up"))
    assert remove_member(etcd, clock=FakeClock(), name="cp-1", check_mode=True)
    etcd.listed = [replace(one, healthy=False) for one in etcd.listed]
    with pytest.raises(AttestedError) as caught:
        remove_member(etcd, clock=FakeClock(), name="cp-1", check_mode=True)
    assert caught.value.code == "ETCD_QUORUM_LOST"
    assert etcd.removed == []


def test_a_member_that_stays_in_the_list_is_no_success() -> None:
    with pytest.raises(AttestedError) as caught:
        remove_member(Etcd(cluster("down", "up", "up"), keeps=True), clock=FakeClock(), name="cp-1")
    assert caught.value.code == "ETCD_REFUSED"


class Restless(Etcd):
    """etcd that says no a number of times first, and that it may be asked again."""

    def __init__(self, members: list[Member], *, times: int, again: float) -> None:
        super().__init__(members)
        self.times = times
        self.again = again

    def remove(self, member: Member) -> None:
        if self.times:
            self.times -= 1
            raise EtcdError("unhealthy cluster", reason=Reason.ETCD_REFUSED, retry_after_seconds=self.again)
        super().remove(member)


def test_etcd_is_asked_again_where_it_says_so() -> None:
    etcd = Restless(cluster("down", "up", "up"), times=5, again=1.0)
    assert remove_member(etcd, clock=FakeClock(), name="cp-1")
    assert etcd.removed == [1]


@pytest.mark.parametrize(
    ("times", "again", "asked"),
    [
        pytest.param(1, 0.0, 1, id="a plain no is not asked again"),
        pytest.param(1000, 1.0, 31, id="nor for ever where it only asks for time"),
    ],
)
def test_etcd_is_not_asked_for_ever(times: int, again: float, asked: int) -> None:
    etcd = Restless(cluster("down", "up", "up"), times=times, again=again)
    with pytest.raises(AttestedError) as caught:
        remove_member(etcd, clock=FakeClock(), name="cp-1")
    assert caught.value.code == "ETCD_REFUSED"
    assert times - etcd.times == asked
