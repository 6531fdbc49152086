# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a machine asks again: jittered, slower each time, never before it was told, and not together with others."""

from __future__ import annotations

import heapq
from collections import Counter

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.node.client import JoinTickets
from ansible_collections.attested.kubernetes.plugins.module_utils.node.retry import Backoff, ask_again
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.retry_policy import first_window
from ansible_collections.attested.kubernetes.plugins.module_utils.services.ticket_store import TicketStore
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import CONFIG
from ansible_collections.attested.kubernetes.tests.unit.fakes.random import SeededRandom

MACHINES = 200


class Highest:
    """Chance that always draws the end of a window."""

    def token(self, size: int) -> bytes:
        """Return the largest number."""
        return b"\xff" * size


def error_of(reason: Reason, *, told: float = 0.0) -> AttestedError:
    return AttestedError("expected A, got B", reason=reason, retry_after_seconds=told)


def windows(*errors: AttestedError) -> list[float | None]:
    """Return the ends of the windows of these failures, one after the other."""
    backoff = Backoff(first=first_window, random=Highest())
    ends = [backoff.pause(error) for error in errors]
    return [None if end is None else round(end, 3) for end in ends]


def test_the_window_doubles_up_to_a_minute() -> None:
    assert windows(*[error_of(Reason.PEER_UNREACHABLE)] * 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_refusal_is_asked_again_slowly_from_the_first() -> None:
    assert windows(*[error_of(Reason.TICKET_REFUSED)] * 4) == [16, 32, 60, 60]


def test_what_never_passes_has_no_pause() -> None:
    assert windows(error_of(Reason.TICKET_SIGNATURE), error_of(Reason.NODELOCK_FOREIGN)) == [None, None]


def test_another_reason_begins_anew_and_the_first_goes_on_where_it_was() -> None:
    """Two failures that take turns do not keep each other quick."""
    away, closed = error_of(Reason.PEER_UNREACHABLE), error_of(Reason.CONNECTION_CLOSED)
    assert windows(away, away, away, closed, away, closed) == [1, 2, 4, 1, 8, 2]


def test_a_service_that_says_when_is_never_asked_earlier() -> None:
    """Nor by all at that very moment; what was counted before is forgotten."""
    away, busy = error_of(Reason.PEER_UNREACHABLE), error_of(Reason.JOIN_SERVICE_BUSY, told=10.0)
    assert windows(away, away, away, busy, busy, away) == [1, 2, 4, 20, 20, 1]
    pauses = [Backoff(first=first_window, random=SeededRandom(seed)).pause(busy) for seed in range(MACHINES)]
    assert all(pause is not None and 10 <= pause < 20 for pause in pauses)


def test_two_hundred_machines_that_fail_at_once_come_back_spread_over_the_window() -> None:
    """Fixed pauses would bring all in one instant; here no twentieth of the window has three times its share."""
    away = error_of(Reason.PEER_UNREACHABLE)
    machines = [Backoff(first=first_window, random=SeededRandom(seed)) for seed in range(MACHINES)]
    for window in (1, 2, 4, 8, 16, 32, 60):
        pauses = [machine.pause(away) or 0.0 for machine in machines]
        shares = Counter(int(pause / window * 20) for pause in pauses)
        assert max(pauses) < window
        assert max(shares.values()) <= 3 * MACHINES / 20
        assert abs(sum(pauses) / MACHINES - window / 2) < window / 10


def arrivals(*, seconds: float, first_failure: float = 0.0) -> list[float]:
    """Return when 200 machines ask within ``seconds`` of a common failure, as long as nobody is there."""
    away = error_of(Reason.PEER_UNREACHABLE)
    machines = [Backoff(first=first_window, random=SeededRandom(seed)) for seed in range(MACHINES)]
    queue = [(first_failure, number) for number in range(MACHINES)]
    heapq.heapify(queue)
    asked: list[float] = []
    while queue[0][0] < seconds:
        now, number = heapq.heappop(queue)
        asked.append(now)
        heapq.heappush(queue, (now + (machines[number].pause(away) or 0.0), number))
    return asked


def test_a_cluster_that_is_away_for_long_is_asked_seldom() -> None:
    """After five minutes 200 machines ask less than 20 times in any second, and about 7 times on average."""
    late = [moment for moment in arrivals(seconds=1800) if moment >= 300]
    busiest = max(Counter(int(moment) for moment in late).values())
    assert busiest <= 20
    assert 5 < len(late) / 1500 < 8


def test_a_cluster_that_comes_back_is_found_within_the_window_by_all() -> None:
    """Whoever waits, waits at most a minute more: each machine asks in every minute."""
    backoff = Backoff(first=first_window, random=SeededRandom(3))
    pauses = [backoff.pause(error_of(Reason.PEER_UNREACHABLE)) or 0.0 for _unused in range(5_000)]
    assert max(pauses) < 60


@pytest.mark.parametrize(
    ("reason", "passes"),
    [pytest.param(Reason.TICKET_REFUSED, True, id="refused"), pytest.param(Reason.RACE_LOST, False, id="lost")],
)
def test_the_tickets_of_a_node_wait_so(reason: Reason, passes: bool) -> None:
    """The real source of tickets, which asks nobody here."""
    pause = JoinTickets(CONFIG, None, store=TicketStore(), handle=None).pause(error_of(reason))
    assert (pause is not None) is passes
    assert pause is None or 0 <= pause < 16


class Asked:
    """Fails with these errors, then answers."""

    def __init__(self, *errors: AttestedError) -> None:
        self._errors = list(errors)
        self.times = 0

    def __call__(self) -> str:
        """Fail or answer."""
        self.times += 1
        if self._errors:
            raise self._errors.pop(0)
        return "ticket"


def test_the_wait_is_told_before_it_begins() -> None:
    told: list[tuple[str, float]] = []
    clock, backoff = FakeClock(), Backoff(first=first_window, random=Highest())
    asked = Asked(error_of(Reason.PEER_UNREACHABLE), error_of(Reason.TICKET_REFUSED))
    answer = ask_again(
        asked,
        pause=backoff.pause,
        clock=clock,
        wait_seconds=60,
        waits=lambda error, seconds: told.append((error.code, round(seconds, 3))),
    )
    assert (answer, told) == ("ticket", [("PEER_UNREACHABLE", 1), ("TICKET_REFUSED", 16)])
    assert clock.elapsed == pytest.approx(17)


def test_the_time_of_the_caller_is_kept() -> None:
    """The last try falls on its end, and its error is raised."""
    clock, backoff = FakeClock(), Backoff(first=first_window, random=Highest())
    asked = Asked(*[error_of(Reason.TICKET_REFUSED)] * 9)
    with pytest.raises(AttestedError):
        ask_again(asked, pause=backoff.pause, clock=clock, wait_seconds=60)
    assert (asked.times, clock.elapsed) == (4, 60)


def test_who_does_not_wait_asks_once() -> None:
    clock, backoff = FakeClock(), Backoff(first=first_window, random=Highest())
    asked = Asked(error_of(Reason.PEER_UNREACHABLE))
    with pytest.raises(AttestedError):
        ask_again(asked, pause=backoff.pause, clock=clock, wait_seconds=0)
    assert (asked.times, clock.elapsed) == (1, 0)
