# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The join client in the race: what it touches only in its turn, and what is left of it when it loses or is stopped.

With a disk: `test_plane_disk.py`; with a real TPM: `tests/component/node/test_race.py`.
"""

from __future__ import annotations

import dataclasses
import threading

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.node.claim import Claim, ClaimFile, Contender, Race
from ansible_collections.attested.kubernetes.plugins.module_utils.node.join_claim import (
    JoinContender,
    RacingLock,
    StoppableClock,
    TurnDisk,
    TurnKeys,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import CLUSTER, DISK

INIT = Claim(Contender.INIT, "a" * 64)
AWAY = TransportError("nobody there", reason=Reason.PEER_UNREACHABLE)
REFUSED = TransportError("attestation refused", reason=Reason.TICKET_REFUSED)


@pytest.fixture
def race(parts, tmp_path):
    return Race(parts.lock, cluster_id=CLUSTER, claims=ClaimFile(tmp_path / "run/attested/claim.json"))


def at_fetch(parts, act):
    """Let ``act`` happen while the join services are asked."""
    fetch = parts.tickets.fetch

    def asked(*, disk_id):
        act()
        return fetch(disk_id=disk_id)

    parts.tickets.fetch = asked


def win(race, claim=INIT):
    with race.turn(claim) as turn:
        turn.take()


@pytest.mark.parametrize("kind", [pytest.param("parts", id="a worker"), pytest.param("member_parts", id="a member")])
@pytest.mark.parametrize("races", [True, False], ids=["in a race", "alone"])
def test_it_becomes_a_node(request, race, kind, races):
    parts = request.getfixturevalue(kind)
    done = JoinContender(parts, race if races else None).run()
    assert [step.name for step in done.steps].count("keys") == (1 if kind == "member_parts" else 0)
    assert (parts.journal.load().phase, parts.lock.taken) == (NodePhase.JOINED, 1)
    assert race.winner() == (Claim(Contender.JOIN) if races else None)


class NotedDisk:
    """A disk that notes when it is opened."""

    def __init__(self, note):
        self.note = note
        self.opened = False

    def is_open(self):
        return self.opened

    def open(self, *, disk_id, key, member):
        self.note(("disk", disk_id, key, member))
        self.opened = True


def test_in_a_race_a_members_disk_is_opened_and_its_keys_are_kept_in_its_turn(member_parts, race):
    """In that order, and while nobody else can take the lock."""
    seen = []
    take = member_parts.keys.take
    disk = NotedDisk(lambda what: seen.append((race._one_at_a_time.locked(), *what)))
    member_parts.keys.take = lambda brought: seen.append((race._one_at_a_time.locked(), "keys")) or take(brought)
    member_parts.tickets.ticket = dataclasses.replace(member_parts.tickets.ticket, disk_key="key")
    JoinContender(dataclasses.replace(member_parts, disk=disk), race).run()
    assert seen == [(True, "disk", DISK, "key", False), (True, "keys")]
    assert member_parts.keys.locked == [False]


def test_who_loses_leaves_neither_ticket_nor_journal(member_parts, race):
    before = member_parts.journal.snapshot()
    at_fetch(member_parts, lambda: win(race))
    assert code_of(JoinContender(member_parts, race).run) == "RACE_LOST"
    assert (member_parts.journal.snapshot(), member_parts.tickets.discarded) == (before, 1)
    assert member_parts.keys.kept == []


def test_one_that_is_stopped_gives_up_wherever_it_waits(parts, race):
    contender = JoinContender(parts, race)
    at_fetch(parts, contender.stop)
    parts.tickets.errors = [AWAY] * 3
    assert code_of(contender.run) == "RACE_LOST"
    assert (len(parts.tickets.asked), parts.tickets.discarded, parts.lock.taken) == (1, 1, 0)
    assert parts.journal.load().phase is NodePhase.FRESH


def test_where_nobody_races_its_ticket_is_kept_for_the_next_start(parts):
    contender = JoinContender(parts, None)
    at_fetch(parts, contender.stop)
    parts.tickets.errors = [AWAY]
    assert code_of(contender.run) == "RACE_LOST"
    assert parts.tickets.discarded == 0


def test_any_other_refusal_is_kept_in_the_journal(member_parts, race):
    keys = member_parts.keys
    keys.failures = [Refusal("no", reason=Reason.TICKET_MALFORMED)]
    contender = JoinContender(member_parts, race)
    assert code_of(contender.run) == "TICKET_MALFORMED"
    assert (member_parts.journal.load().phase, member_parts.tickets.discarded) == (NodePhase.ASKING, 0)
    contender.run()
    assert (member_parts.journal.load().phase, len(keys.kept)) == (NodePhase.JOINED, 1)


def test_it_asks_for_as_long_as_it_takes(parts, race, clock):
    """A machine in a rack may wait for years."""
    at_fetch(parts, lambda: clock.sleep(20 * 365 * 24 * 3600))
    parts.tickets.errors = [AWAY, AWAY]
    parts.tickets.pause = lambda _error: 0.0
    JoinContender(parts, race).run()
    assert len(parts.tickets.asked) == 3


class Untouched:
    """Stands for a disk and for keys that nobody may touch."""

    def open(self, **_given):
        raise AssertionError

    def take(self, _brought):
        raise AssertionError


def test_a_turn_for_which_nothing_was_brought_touches_nothing(parts, race):
    lock = RacingLock(parts.lock, race, disk=TurnDisk(Untouched()), keys=TurnKeys(Untouched()))
    assert lock.acquire(CLUSTER).won


def test_who_goes_on_after_a_kill_has_kept_its_keys_already(parts, race):
    """Its lock is taken, so they could not be sealed to an unlocked machine any more."""
    win(race, Claim(Contender.JOIN))
    keys = TurnKeys(Untouched())
    assert keys.take("brought")
    assert not RacingLock(parts.lock, race, keys=keys).acquire(CLUSTER).won


def test_a_sleep_that_is_woken_ends_and_no_later_one(clock):
    stoppable = StoppableClock(clock)
    stoppable.wake()  # nobody sleeps
    sleeper = threading.Thread(target=stoppable.sleep, args=(3600,), daemon=True)
    sleeper.start()
    sleeper.join(0.05)
    assert sleeper.is_alive()
    stoppable.wake()
    sleeper.join(60)
    assert not sleeper.is_alive()


def test_a_sleep_that_is_stopped_ends_as_lost(clock):
    stoppable, codes = StoppableClock(clock), []
    sleeper = threading.Thread(target=lambda: codes.append(code_of(lambda: stoppable.sleep(3600))), daemon=True)
    sleeper.start()
    sleeper.join(0.05)
    assert sleeper.is_alive()
    stoppable.stop()
    sleeper.join(60)
    assert codes == ["RACE_LOST"]


def test_one_that_is_woken_asks_again_without_the_pause(parts, race):
    parts.tickets.errors, parts.tickets.pause = [AWAY], lambda _error: 3600.0
    contender = JoinContender(parts, race)
    asking = threading.Thread(target=contender.run, daemon=True)
    asking.start()
    for _try in range(600):  # a wake before the pause has begun ends no pause
        contender.wake()
        asking.join(0.1)
        if not asking.is_alive():
            break
    assert (len(parts.tickets.asked), parts.journal.load().phase) == (2, NodePhase.JOINED)


def test_a_clock_that_nobody_stops_goes_on(clock):
    stoppable = StoppableClock(clock)
    assert stoppable.sleep(0.001) is None
    stoppable.stop()
    assert code_of(lambda: stoppable.sleep(5)) == "RACE_LOST"
    assert (stoppable.now(), stoppable.monotonic()) == (clock.now(), clock.monotonic())
