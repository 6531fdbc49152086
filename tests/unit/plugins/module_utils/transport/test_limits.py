# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counting connections: the oldest stranger goes, attested peers share their seats by source."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import ClassVar

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.limits import (
    Limits,
    Pace,
    Remembered,
    Seat,
    Served,
    Unverified,
)


def entered(limits: Limits, *sources: str) -> list[int]:
    """Let connections in, one after another, and return the positions of those that were given up."""
    gone: list[int] = []
    unverified = Unverified(limits)
    for position, source in enumerate(sources):
        unverified.enter(source, lambda position=position: gone.append(position))
    return gone


@pytest.mark.parametrize(
    ("sources", "gone"),
    [
        pytest.param("abcd", [], id="within the limit nobody goes"),
        pytest.param("abcde", [0], id="one more than fits: the oldest of all goes"),
        pytest.param("aaab", [0], id="one source too often: its own oldest goes"),
        pytest.param("baab", [], id="twice each fits"),
        pytest.param("baacd", [1], id="one more than fits: the oldest of who holds the most goes"),
        pytest.param("baacdee", [1, 0, 2], id="once all hold as few: the oldest of all goes"),
        pytest.param("bacaa", [1], id="a full source pays itself, not the oldest of all"),
    ],
)
def test_the_oldest_gives_way(sources: str, gone: list[int]) -> None:
    """Four in all, two a source."""
    assert gone == entered(Limits(unverified=4, unverified_per_source=2), *sources)


def test_leaving_twice_counts_once() -> None:
    """Given up and ended are both told; the count stays right."""
    unverified = Unverified(Limits(unverified=1))
    first = unverified.enter("a", lambda: None)
    unverified.enter("b", lambda: None)
    unverified.leave(first)
    unverified.leave(first)
    assert len(unverified) == 1


SMALL = Limits(served=4, served_per_source=2, reserved=1, served_per_key=1, unproven_calls=2)
"""Four seats, one of them for keys that are known, two a source."""


class Room:
    """Seats that say by name who was given up."""

    def __init__(self, limits: Limits = SMALL) -> None:
        self.served = Served(limits)
        self.gone: list[str] = []

    def enter(self, name: str, source: str, *, now: float = 0.0, key: bytes = b"") -> Seat:
        """Take a seat."""
        return self.served.enter(source, lambda: self.gone.append(name), now=now, key=key)

    def is_full_for(self, source: str, *, now: float = 0.0, key: bytes = b"") -> bool:
        """Say whether one more is refused."""
        try:
            self.enter("one more", source, now=now, key=key)
        except TransportError as error:
            assert error.code == "CONNECTION_LIMIT"
            return True
        return False


@pytest.mark.parametrize(
    ("taken", "source", "full", "gone"),
    [
        pytest.param("aa", "b", False, [], id="room for all"),
        pytest.param("aa", "a", True, [], id="too many of one source, within its time"),
        pytest.param("aab", "c", False, ["a0"], id="the source that holds the most pays for another"),
        pytest.param("abb", "a", False, ["b1"], id="also for one that holds some"),
        pytest.param("abc", "d", False, ["a0"], id="of equals the oldest pays for who holds none"),
        pytest.param("abc", "b", True, [], id="nobody pays for who holds as many"),
    ],
)
def test_strangers_share_their_seats_by_source(taken: str, source: str, full: bool, gone: list[str]) -> None:
    """Three of the four are theirs."""
    room = Room()
    for number, one in enumerate(taken):
        room.enter(f"{one}{number}", one)
    assert (room.is_full_for(source, now=29.9), room.gone) == (full, gone)
    assert room.served.unproven == len(room.served) == len(taken) + (not full) - len(gone)


def test_a_seat_that_was_left_is_free() -> None:
    """And leaving twice counts once."""
    room = Room()
    first, _second = room.enter("first", "a"), room.enter("second", "a")
    assert room.is_full_for("a")
    room.served.leave(first)
    room.served.leave(first)
    assert (room.is_full_for("a"), room.gone) == (False, [])


def test_a_stranger_that_had_its_time_makes_room_for_its_own_source() -> None:
    """The oldest, after its patience."""
    room = Room()
    room.enter("first", "a", now=1.0)
    room.enter("second", "a", now=2.0)
    assert room.is_full_for("a", now=30.9)
    assert (room.is_full_for("a", now=31.0), room.gone) == (False, ["first"])


def test_a_connection_that_waits_for_an_answer_is_given_up_last() -> None:
    """A silent one of the same source goes before it."""
    room = Room()
    room.enter("asks", "a").begin()
    room.enter("silent", "a")
    room.enter("other", "b")
    room.enter("newcomer", "c")
    assert room.gone == ["silent"]


def test_a_key_that_has_proven_itself_has_a_seat_in_reserve() -> None:
    """Strangers never take it; with all taken one of theirs goes for it."""
    room = Room()
    seat = room.enter("machine", "m", key=b"k")
    assert not seat.is_known
    seat.prove()
    assert (seat.is_known, room.served.unproven, room.served.knows("m"), room.served.knows("a")) == (
        True,
        0,
        True,
        False,
    )
    room.served.leave(seat)
    for number, source in enumerate("aab"):
        room.enter(f"{source}{number}", source)
    assert room.enter("machine", "m", key=b"k").is_known
    assert (room.gone, len(room.served)) == ([], 4)


def test_a_known_key_takes_a_strangers_place_where_all_are_taken() -> None:
    """Of the source that holds the most; among nothing but known keys it is told to come back."""
    room = Room(replace(SMALL, reserved=0, served=2))
    for key in (b"k", b"l", b"m"):
        seat = room.enter("machine", "m", key=key)
        seat.prove()
        room.served.leave(seat)
    room.enter("a0", "a")
    room.enter("a1", "a")
    room.enter("k", "m", key=b"k")
    room.enter("l", "m", key=b"l")
    assert room.gone == ["a0", "a1"]
    assert room.is_full_for("m", key=b"m")
    assert room.is_full_for("b")


def test_a_known_key_has_so_many_seats_and_no_more() -> None:
    """What it opens beyond them counts as a stranger's."""
    room = Room()
    room.enter("first", "m", key=b"k").prove()
    assert not room.enter("second", "m", key=b"k").is_known
    assert room.served.unproven == 1


def test_who_proves_himself_keeps_his_seat() -> None:
    """Nobody is let in at his cost."""
    room = Room(replace(SMALL, reserved=0))
    for number in range(4):
        room.enter(f"m{number}", "m", key=b"%d" % number).prove()
    assert (room.is_full_for("a", now=1000.0), room.gone) == (True, [])


def test_a_connection_of_which_no_call_was_granted_makes_few() -> None:
    """And is shut once one was refused; who is known is not."""
    shut: list[str] = []
    seat = Room().enter("stranger", "a")
    seat.shut = lambda: shut.append("shut")
    for _unused in range(2):
        seat.begin()
        seat.end()
    with pytest.raises(Refusal, match="CALL_LIMIT"):
        seat.begin()
    seat.refused()
    assert (shut, seat.running) == (["shut"], 0)
    seat.prove()
    seat.begin()
    seat.refused()
    assert (shut, seat.running) == (["shut"], 1)


def test_what_is_remembered_is_bounded() -> None:
    """The longest ago goes."""
    kept: Remembered[str] = Remembered(2)
    for word in ("a", "b", "a", "c"):
        kept.add(word)
    assert ("a" in kept, "b" in kept, "c" in kept) == (True, False, True)


def opened() -> asyncio.Future[None]:
    """Return the future of a connection that is not closed."""
    return asyncio.get_running_loop().create_future()


class TestPace:
    """Newcomers, three at once and then one at a time."""

    LEFT: ClassVar = {"busy": 1.0, "fresh": 9.0}

    @pytest.fixture
    def pace(self) -> Pace:
        """Twenty a second, so that the order can be seen."""
        limits = Limits(newcomers_per_second=20.0, newcomer_burst=3)
        return Pace(limits, left=self.LEFT.__getitem__, clock=SystemClock())

    async def test_who_used_least_goes_first(self, pace: Pace) -> None:
        """However many others came before."""
        begun: list[str] = []

        async def come(source: str) -> None:
            await pace.turn(source, opened())
            begun.append(source)

        async with asyncio.TaskGroup() as group:
            for source in ("busy", "busy", "busy", "busy", "busy", "fresh"):
                group.create_task(come(source))
            await asyncio.sleep(0)
            assert len(pace) == 3
        assert begun == ["busy", "busy", "busy", "fresh", "busy", "busy"]
        assert len(pace) == 0

    async def test_who_proves_himself_is_counted_no_more(self) -> None:
        """The next one begins at once, however slow the rate is; of one source it is told once."""
        pace = Pace(
            Limits(newcomers_per_second=0.001, newcomer_burst=1), left=self.LEFT.__getitem__, clock=SystemClock()
        )
        served = Served(Limits(), proven=pace.proven)
        await pace.turn("busy", opened())
        waiting = [asyncio.create_task(pace.turn("busy", opened())) for _unused in range(2)]
        await asyncio.sleep(0)
        for _unused in range(2):
            served.enter("busy", lambda: None, now=0.0).prove()
        await waiting[0]
        assert len(pace) == 1
        waiting[1].cancel()

    async def test_who_gave_up_costs_no_turn(self, pace: Pace) -> None:
        """The next one has it."""
        waiting = [asyncio.create_task(pace.turn("busy", opened())) for _unused in range(5)]
        await asyncio.sleep(0)
        waiting[3].cancel()
        await asyncio.gather(*waiting[:3], waiting[4])
        assert len(pace) == 0

    async def test_a_closed_connection_costs_no_turn(self, pace: Pace) -> None:
        """Its peer hung up, or its place went to another one; the next one has its turn."""
        gone = opened()
        waiting = [asyncio.create_task(pace.turn("busy", opened())) for _unused in range(3)]
        waiting += [asyncio.create_task(pace.turn("fresh", gone)) for _unused in range(2)]
        waiting += [asyncio.create_task(pace.turn("busy", opened()))]
        await asyncio.sleep(0)
        assert len(pace) == 3
        gone.set_result(None)
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [getattr(one, "code", None) for one in ended] == [*[None] * 3, *["CONNECTION_CLOSED"] * 2, None]
        assert [getattr(one, "retryable", None) for one in ended[3:5]] == [True, True]
        assert len(pace) == 0

    async def test_a_connection_that_closes_just_after_its_turn_came_has_had_it(self) -> None:
        """Its end is noticed by what reads from it."""
        pace = Pace(
            Limits(newcomers_per_second=0.001, newcomer_burst=1), left=self.LEFT.__getitem__, clock=SystemClock()
        )
        problems: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
        await pace.turn("busy", opened())
        gone = opened()
        waiting = asyncio.create_task(pace.turn("busy", gone))
        await asyncio.sleep(0)
        pace.proven()
        gone.set_result(None)
        await waiting
        await asyncio.sleep(0)
        assert problems == []
