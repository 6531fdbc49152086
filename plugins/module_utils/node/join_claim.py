# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The join client as a contender: takes the node lock in the race, and removes its traces if it loses."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..reasons import Reason
from .claim import Claim, Contender
from .order import NodeRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ..core.host import Clock
    from ..evidence.eventlog.nodelock import LockReading
    from ..evidence.node_lock import Acquisition
    from ..keyservice.master import DiskKey
    from ..keyservice.ring import NamedDiskKey
    from ..keyservice.ticket import SealedSecrets
    from .claim import Race
    from .order import ControlPlaneTicket, KeyTaker, Lock, Outcome, Parts, StateDisk

UNTIL_STOPPED_SECONDS = math.inf
"""A machine asks without a time limit until it gets a ticket or is initialised."""

_JOIN = Claim(Contender.JOIN)


class StoppableClock:
    """A clock whose sleep another thread can end: `stop` raises RACE_LOST in it, `wake` lets it return."""

    def __init__(self, clock: Clock) -> None:
        """Return the times of ``clock``."""
        self._clock = clock
        self._changed = threading.Condition()
        self._stopped = False
        self._wakes = 0

    def stop(self) -> None:
        """End this sleep and every later one."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wake(self) -> None:
        """End the present sleep only."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return self._clock.now()

    def monotonic(self) -> float:
        """Return the seconds since a fixed point of this boot."""
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds``; raises RACE_LOST once stopped."""
        with self._changed:
            before = self._wakes
            self._changed.wait_for(lambda: self._stopped or self._wakes > before, timeout=seconds)
            stopped = self._stopped
        if stopped:
            raise Refusal("expected to ask again, the other contender has won", reason=Reason.RACE_LOST)


class TurnKeys:
    """Holds a ticket's keys until this contender's turn, so that a losing contender stores nothing."""

    def __init__(self, keys: KeyTaker) -> None:
        """Store the keys with ``keys`` in the turn."""
        self._keys = keys
        self._brought: ControlPlaneTicket | None = None

    def take(self, brought: ControlPlaneTicket) -> bool:
        """Hold the keys in memory."""
        self._brought = brought
        return True

    def keep(self) -> None:
        """Store the keys; raises as `KeyTaker.take`.

        A failed turn leaves only sealed keys, which the next one replaces.
        """
        if self._brought is not None:
            self._keys.take(self._brought)


class TurnDisk:
    """Holds the disk's key until this contender's turn, because an init would format the same disk."""

    def __init__(self, disk: StateDisk) -> None:
        """Open ``disk`` in the turn."""
        self._disk = disk
        self._open: Callable[[], None] | None = None

    def is_open(self) -> bool:
        """Return whether the volume is open and mounted."""
        return self._disk.is_open()

    def open(self, *, disk_id: str, key: DiskKey | NamedDiskKey | SealedSecrets, member: bool) -> None:
        """Hold the id and the key in memory."""
        self._open = partial(self._disk.open, disk_id=disk_id, key=key, member=member)

    def keep(self) -> None:
        """Open the disk; raises as `StateDisk.open`."""
        if self._open is not None:
            self._open()


class RacingLock:
    """The node's lock, taken through the race."""

    def __init__(self, lock: Lock, race: Race, *, disk: TurnDisk | None = None, keys: TurnKeys | None = None) -> None:
        """Read ``lock`` and take it by ``race``.

        The turn first opens ``disk``, then stores ``keys``, which are on it.
        """
        self._lock = lock
        self._race = race
        self._prepared = [one for one in (disk, keys) if one is not None]

    def read(self) -> LockReading:
        """Return the present reading."""
        return self._lock.read()

    def acquire(self, _cluster_id: bytes) -> Acquisition:
        """Take the lock for the join, for the cluster of the race; raises RACE_LOST."""
        with self._race.turn(_JOIN) as turn:
            if not turn.again:
                for one in self._prepared:
                    one.keep()
            return turn.take()


class JoinContender:
    """Asks for a ticket until it gets one, loses the race, or is stopped."""

    def __init__(self, parts: Parts, race: Race | None) -> None:
        """Run the node of ``parts`` with a stoppable clock and with the lock of the race.

        Without a race this machine has already decided to join, so key and tickets are kept for the next start.
        """
        self._clock = StoppableClock(parts.machine.clock)
        self._racing = race is not None
        parts = replace(parts, machine=replace(parts.machine, clock=self._clock))
        self._parts = parts if race is None else _racing(parts, race)

    def stop(self) -> None:
        """Stop the client, from any thread, because the other contender has won."""
        self._clock.stop()

    def wake(self) -> None:
        """End the pause before the next attempt, from any thread."""
        self._clock.wake()

    def run(self) -> Outcome:
        """Make this machine a node.

        Raises RACE_LOST, in a race after key, tickets and journal entries were removed. Any other error is recorded in
        the journal, and another `run` continues.
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


def _racing(parts: Parts, race: Race) -> Parts:
    """Return the parts of a node that takes its lock, opens its disk and stores its keys only in a turn of ``race``."""
    if parts.keys is None:
        return replace(parts, lock=RacingLock(parts.lock, race))
    keys, disk = TurnKeys(parts.keys), None if parts.disk is None else TurnDisk(parts.disk)
    return replace(parts, keys=keys, disk=disk, lock=RacingLock(parts.lock, race, disk=disk, keys=keys))
