# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The join client as a contender: one node's run that takes its lock in the race, and leaves no trace when it loses."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..reasons import Reason
from .claim import Claim, Contender
from .order import NodeRun

if TYPE_CHECKING:
    from datetime import datetime

    from ..nodelock import Acquisition, LockReading
    from ..system import Clock
    from .order import Lock, Outcome, Parts
    from .race import Race

UNTIL_STOPPED_SECONDS = 10.0 * 365 * 24 * 3600
"""A machine in a rack asks until it is let in or initialised."""

_JOIN = Claim(Contender.JOIN)


class StoppableClock:
    """A clock whose sleep ends at once, with RACE_LOST, when somebody calls `stop`."""

    def __init__(self, clock: Clock) -> None:
        """Tell the time of ``clock``."""
        self._clock = clock
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End this sleep and every later one."""
        self._stopped.set()

    def now(self) -> datetime:
        """Wall clock, UTC."""
        return self._clock.now()

    def monotonic(self) -> float:
        """Seconds since some fixed point of this boot."""
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds``; raises RACE_LOST once stopped."""
        if self._stopped.wait(seconds):
            raise Refusal("expected to go on asking, the other contender has won", reason=Reason.RACE_LOST)


class RacingLock:
    """The node's lock, reached through the race."""

    def __init__(self, lock: Lock, race: Race) -> None:
        """Read ``lock`` and take it by ``race``."""
        self._lock = lock
        self._race = race

    def read(self) -> LockReading:
        """Return the reading now."""
        return self._lock.read()

    def acquire(self, _cluster_id: bytes) -> Acquisition:
        """Take the lock for the join; the race knows the cluster. Raises RACE_LOST."""
        with self._race.turn(_JOIN) as turn:
            return turn.take()


class JoinContender:
    """Asks for a ticket until there is one, or the race is lost, or it is stopped."""

    def __init__(self, parts: Parts, race: Race | None) -> None:
        """Run the node of ``parts``; its clock is made stoppable, its lock is the race's.

        Without a race it is settled that this machine joins: what it has is kept for the next start.
        """
        self._clock = StoppableClock(parts.machine.clock)
        self._racing = race is not None
        machine = replace(parts.machine, clock=self._clock)
        lock = parts.lock if race is None else RacingLock(parts.lock, race)
        self._parts = replace(parts, machine=machine, lock=lock)

    def stop(self) -> None:
        """Give up, from any thread: the other contender has won."""
        self._clock.stop()

    def run(self) -> Outcome:
        """Become a node; raises RACE_LOST, in a race after everything that the asking left here was removed.

        Any other error is kept in the journal, and another `run` goes on.
        """
        journal = self._parts.journal
        before = journal.snapshot()
        run = NodeRun(self._parts)
        try:
            return run.apply(run.plan(), wait_seconds=UNTIL_STOPPED_SECONDS)
        except Refusal as error:
            if error.reason is Reason.RACE_LOST:
                if self._racing:
                    self._parts.tickets.discard()
                journal.put_back(before)
            raise
