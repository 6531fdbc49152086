# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The join client as a contender: one node's run that takes its lock in the race, and leaves no trace when it loses."""

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
"""A machine in a rack asks until it is let in or initialised."""

_JOIN = Claim(Contender.JOIN)


class StoppableClock:
    """A clock whose sleep ends at once, with RACE_LOST, when somebody calls `stop`, and early at `wake`."""

    def __init__(self, clock: Clock) -> None:
        """Tell the time of ``clock``."""
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
        """End this sleep, and no later one."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def now(self) -> datetime:
        """Wall clock, UTC."""
        return self._clock.now()

    def monotonic(self) -> float:
        """Seconds since some fixed point of this boot."""
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds``; raises RACE_LOST once stopped."""
        with self._changed:
            before = self._wakes
            self._changed.wait_for(lambda: self._stopped or self._wakes > before, timeout=seconds)
            stopped = self._stopped
        if stopped:
            raise Refusal("expected to go on asking, the other contender has won", reason=Reason.RACE_LOST)


class TurnKeys:
    """Holds what a control plane's ticket brings until it is this contender's turn, so who loses has kept nothing."""

    def __init__(self, keys: KeyTaker) -> None:
        """Let ``keys`` keep it in the turn."""
        self._keys = keys
        self._brought: ControlPlaneTicket | None = None

    def take(self, brought: ControlPlaneTicket) -> bool:
        """Hold it in memory."""
        self._brought = brought
        return True

    def keep(self) -> None:
        """Keep it; raises as `KeyTaker.take`. What a turn that fails leaves is sealed, and the next one replaces it."""
        if self._brought is not None:
            self._keys.take(self._brought)


class TurnDisk:
    """Holds the key of the node's disk until it is this contender's turn: an init would make the same disk."""

    def __init__(self, disk: StateDisk) -> None:
        """Let ``disk`` be opened in the turn."""
        self._disk = disk
        self._open: Callable[[], None] | None = None

    def is_open(self) -> bool:
        """Return whether the volume of this boot is in its places."""
        return self._disk.is_open()

    def open(self, *, disk_id: str, key: DiskKey | NamedDiskKey | SealedSecrets, member: bool) -> None:
        """Hold what opens it in memory."""
        self._open = partial(self._disk.open, disk_id=disk_id, key=key, member=member)

    def keep(self) -> None:
        """Open it; raises as `StateDisk.open`."""
        if self._open is not None:
            self._open()


class RacingLock:
    """The node's lock, reached through the race."""

    def __init__(self, lock: Lock, race: Race, *, disk: TurnDisk | None = None, keys: TurnKeys | None = None) -> None:
        """Read ``lock`` and take it by ``race``; in the turn ``disk`` is opened, then ``keys`` are kept, on it."""
        self._lock = lock
        self._race = race
        self._prepared = [one for one in (disk, keys) if one is not None]

    def read(self) -> LockReading:
        """Return the reading now."""
        return self._lock.read()

    def acquire(self, _cluster_id: bytes) -> Acquisition:
        """Take the lock for the join; the race knows the cluster. Raises RACE_LOST."""
        with self._race.turn(_JOIN) as turn:
            if not turn.again:
                for one in self._prepared:
                    one.keep()
            return turn.take()


class JoinContender:
    """Asks for a ticket until there is one, or the race is lost, or it is stopped."""

    def __init__(self, parts: Parts, race: Race | None) -> None:
        """Run the node of ``parts``; its clock is made stoppable, its lock is the race's.

        Without a race it is settled that this machine joins: what it has is kept for the next start.
        """
        self._clock = StoppableClock(parts.machine.clock)
        self._racing = race is not None
        parts = replace(parts, machine=replace(parts.machine, clock=self._clock))
        self._parts = parts if race is None else _racing(parts, race)

    def stop(self) -> None:
        """Give up, from any thread: the other contender has won."""
        self._clock.stop()

    def wake(self) -> None:
        """End the pause before the next try, from any thread."""
        self._clock.wake()

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


def _racing(parts: Parts, race: Race) -> Parts:
    """Return the parts of a node that takes its lock in a turn of ``race``, and there alone touches what init would."""
    if parts.keys is None:
        return replace(parts, lock=RacingLock(parts.lock, race))
    keys, disk = TurnKeys(parts.keys), None if parts.disk is None else TurnDisk(parts.disk)
    return replace(parts, keys=keys, disk=disk, lock=RacingLock(parts.lock, race, disk=disk, keys=keys))
