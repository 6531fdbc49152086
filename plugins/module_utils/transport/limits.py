# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bounds of a listener: what strangers may cost before and after they have shown evidence.

Evidence over a nonce costs a stranger with a TPM of software nothing. So places are shared by source (`system.Shares`):
where all are taken, the source that holds the most gives one up. A place is kept by who has proven itself, which means
that a call of its own was granted: its key, where it showed one, and its source are remembered then.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from ..core.rate import Shares, TokenBuckets
from ..errors import Refusal, TransportError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ..core.host import Clock

_REMEMBERED = 4096

Item = TypeVar("Item", bound="Hashable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one listener; the defaults serve a few hundred machines that boot at once.

    An unverified connection costs about 25 KB, a served one about 100 KB.
    """

    unverified: int = 512
    """Connections that have shown nothing yet; the oldest of the address with the most goes when one more comes."""
    unverified_per_source: int = 256
    """The same for one address; large, because a load balancer makes many machines look like one."""
    arrivals_per_second: float = 20.0
    """New connections of one address in the long run; one more is closed before anything is done for it."""
    arrival_burst: int = 512
    """The same at once: as many as there are places, so that a herd behind one address gets in."""
    newcomers_per_second: float = 10.0
    """TLS handshakes of all sources together from which nobody has proven itself; more wait for their turn.

    All that a stranger does until his end costs 5 ms or so. Who proves himself is counted no more, so that a herd goes
    as fast as it is given tickets.
    """
    newcomer_burst: int = 64
    """The same at once."""
    served: int = 256
    """Connections that have shown evidence; one more is closed at once, unless another can go."""
    served_per_source: int = 128
    """The same for one address of which nothing else is known."""
    reserved: int = 64
    """Of these, places for keys that have proven themselves before."""
    served_per_key: int = 4
    """Places of one such key; what it opens beyond them counts as a stranger's."""
    served_patience_seconds: float = 30.0
    """What an attested connection gets before another of its own source takes its place."""
    unproven_seconds: float = 15.0
    """How long an attested connection may live until a call of its own is granted; a call that runs is waited for."""
    unproven_calls: int = 8
    """How many calls it may make until then."""
    refused_seconds: float = 1.0
    """How long it may take the answer to a call that was refused; nothing more is read from it."""
    handshake_seconds: float = 10.0
    """From the first byte to the end of the TLS handshake; in it the peer's TPM quotes, and slow ones need seconds."""
    judging_seconds: float = 10.0
    """For the judgement of evidence, waiting for a free worker included."""
    judging_workers: int = 2
    """Evidence judged, or made, at the same time."""
    judges_inline: bool = False
    """Judge on the event loop: for a validator that takes less than handing over (0.3 ms) and never waits."""
    handshake_bytes: int = 98_304
    """What a peer may send before it is served; OpenSSL itself allows 100 KB of certificates."""
    rejected_seconds: float = 10.0
    """How long a rejected peer may hold its connection."""
    rejection_floor_seconds: float = 0.25
    """No rejection is answered earlier, counted from the first byte: its time says nothing about its cause."""
    linger_seconds: float = 5.0
    """How long a closed connection may take to accept what is still to be sent."""
    served_seconds: float = 300.0
    """How long one attested connection may live; evidence ages."""


class Remembered(Generic[Item]):
    """The last things that were noted, a bounded number."""

    def __init__(self, limit: int = _REMEMBERED) -> None:
        """Keep ``limit`` of them."""
        self._limit = limit
        self._items: OrderedDict[Item, None] = OrderedDict()

    def __contains__(self, item: object) -> bool:
        """Say whether ``item`` was noted and is kept."""
        return item in self._items

    def add(self, item: Item) -> None:
        """Note ``item`` as the latest."""
        self._items[item] = None
        self._items.move_to_end(item)
        if len(self._items) > self._limit:
            self._items.popitem(last=False)


@dataclass(eq=False, slots=True)
class Slot:
    """One connection that takes part in the counting."""

    source: str
    give_up: Callable[[], None]


class Unverified:
    """Connections that have shown nothing yet, oldest first."""

    def __init__(self, limits: Limits) -> None:
        """Count against ``limits``."""
        self._limits = limits
        self._slots: Shares[Slot] = Shares()

    def __len__(self) -> int:
        """Count them."""
        return len(self._slots)

    def enter(self, source: str, give_up: Callable[[], None]) -> Slot:
        """Take a slot; where there is none, the oldest is given up for it: of this source, or of who holds the most.

        Whoever floods pays himself: from an address that holds few, a handshake ends however many come meanwhile.
        """
        if self._slots.count(source) >= self._limits.unverified_per_source:
            self._evict(self._slots.oldest(source))
        elif len(self._slots) >= self._limits.unverified:
            self._evict(self._slots.of_the_largest())
        slot = Slot(source, give_up)
        self._slots.add(source, slot)
        return slot

    def leave(self, slot: Slot) -> None:
        """Give the slot back; harmless when it was given up already."""
        self._slots.remove(slot)

    def _evict(self, slot: Slot) -> None:
        self.leave(slot)
        slot.give_up()


class Pace:
    """Lets handshakes of newcomers begin at a bounded rate; whose source used the least lately goes first."""

    def __init__(self, limits: Limits, *, left: Callable[[str], float], clock: Clock) -> None:
        """Order who waits by what the source has ``left`` of its own rate."""
        self._rate = limits.newcomers_per_second
        self._tokens = TokenBuckets(
            rate=self._rate,
            burst=limits.newcomer_burst,
            clock=clock,
            reason=Reason.CONNECTION_LIMIT,
            what="handshakes a second of all newcomers",
        )
        self._left = left
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Count who waits."""
        return sum(not turn.done() for _left, _number, turn in self._waiting)

    async def turn(self, source: str) -> None:
        """Return when a newcomer from ``source`` may begin."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-self._left(source), next(self._numbers), turn))
        if self._timer is None:
            self._serve()
        await turn

    def proven(self) -> None:
        """Let one more begin: one that did has proven itself."""
        self._tokens.give_back("")
        if self._timer is not None:
            self._timer.cancel()
            self._serve()

    def _serve(self) -> None:
        """Let in as many as may, and come back for the others."""
        self._timer = None
        try:
            while self._waiting:
                if not self._waiting[0][2].done():  # who gave up meanwhile costs nothing
                    self._tokens.take("")
                    self._waiting[0][2].set_result(None)
                heapq.heappop(self._waiting)
        except Refusal as refusal:
            wait = max(refusal.retry_after_seconds, 1 / self._rate / 2)
            self._timer = asyncio.get_running_loop().call_later(wait, self._serve)


@dataclass(eq=False, slots=True, kw_only=True)
class Seat:
    """The place of one attested connection, and what it has done with it; `serving.Caller` for the server behind.

    ``key`` names the key that it has shown (empty where none was asked for). ``is_known``: that key had proven itself
    before, or this connection has. ``shut`` lets nothing more be read from it;
    ``proven`` is called with the seat once a call was granted.
    """

    source: str
    key: bytes
    give_up: Callable[[], None]
    entered: float
    calls_left: int
    is_known: bool
    proven: Callable[[Seat], None] = lambda _seat: None
    shut: Callable[[], None] = lambda: None
    running: int = field(default=0)

    def begin(self) -> None:
        """Count one whole request; raises `Refusal` CALL_LIMIT where this connection had its calls."""
        if not self.is_known:
            if not self.calls_left:
                raise Refusal(
                    "expected no more calls of a connection of which none was granted, got one more",
                    reason=Reason.CALL_LIMIT,
                )
            self.calls_left -= 1
        self.running += 1

    def end(self) -> None:
        """Note that its answer is decided."""
        self.running -= 1

    def prove(self) -> None:
        """Note that a call was granted."""
        self.proven(self)

    def refused(self) -> None:
        """End a connection that has proven nothing once its call was refused: to ask again costs a handshake."""
        if not self.is_known:
            self.shut()

    def release(self) -> None:
        """Forget the connection, which has ended: a call's context may hold this seat for longer."""
        self.give_up = self.shut = lambda: None


class Served:
    """Attested connections: strangers by source, those whose key is known by key."""

    def __init__(self, limits: Limits, *, proven: Callable[[], None] = lambda: None) -> None:
        """Count against ``limits``; ``proven`` is told of each source from which somebody proves himself at last."""
        self._limits = limits
        self._proven = proven
        self._strangers: Shares[Seat] = Shares()
        self._known: Shares[Seat] = Shares()
        self._keys: Remembered[bytes] = Remembered()
        self._sources: Remembered[str] = Remembered()

    def __len__(self) -> int:
        """Count them."""
        return len(self._strangers) + len(self._known)

    @property
    def unproven(self) -> int:
        """Those of which nothing is known but evidence."""
        return len(self._strangers)

    def knows(self, source: str) -> bool:
        """Say whether somebody from ``source`` has proven himself lately."""
        return source in self._sources

    def enter(self, source: str, give_up: Callable[[], None], *, now: float, key: bytes = b"") -> Seat:
        """Take a seat at ``now`` (monotonic); raises `TransportError` CONNECTION_LIMIT where there is none."""
        limits = self._limits
        is_known = key in self._keys and self._known.count(key.hex()) < limits.served_per_key
        if is_known:
            if len(self) >= limits.served:
                self._make_room_for_known(source)
        elif self._strangers.count(source) >= limits.served_per_source:
            self._end_oldest(source, now)
        elif len(self._strangers) >= limits.served - limits.reserved or len(self) >= limits.served:
            self._make_room(source, now)
        seat = Seat(
            source=source,
            key=key,
            give_up=give_up,
            entered=now,
            calls_left=limits.unproven_calls,
            is_known=is_known,
            proven=self._prove,
        )
        if is_known:
            self._known.add(key.hex(), seat)
        else:
            self._strangers.add(source, seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """Give the seat back; harmless when it was given up already."""
        if not self._strangers.remove(seat):
            self._known.remove(seat)

    def _prove(self, seat: Seat) -> None:
        if seat.key:
            self._keys.add(seat.key)
        if seat.source not in self._sources:
            self._proven()
        self._sources.add(seat.source)
        seat.is_known = True
        if self._strangers.remove(seat):
            self._known.add(seat.key.hex(), seat)

    def _make_room(self, source: str, now: float) -> None:
        """Let the source that holds the most pay for a stranger, one that waits for nothing before one that does."""
        if not self._strangers:
            raise self._full(source)
        largest = self._strangers.of_the_largest().source
        if self._strangers.count(largest) > self._strangers.count(source):
            self._evict(self._of(largest))
            return
        self._end_oldest(source, now)

    def _make_room_for_known(self, source: str) -> None:
        if not self._strangers:
            raise self._full(source)
        self._evict(self._of(self._strangers.of_the_largest().source))

    def _of(self, source: str) -> Seat:
        held = [seat for seat in self._strangers if seat.source == source]
        return next((seat for seat in held if not seat.running), held[0])

    def _end_oldest(self, source: str, now: float) -> None:
        oldest = self._strangers.oldest(source)
        if now - oldest.entered < self._limits.served_patience_seconds:
            raise self._full(source)
        self._evict(oldest)

    def _evict(self, seat: Seat) -> None:
        self.leave(seat)
        seat.give_up()

    def _full(self, source: str) -> TransportError:
        return TransportError(
            f"expected at most {self._limits.served} attested connections and "
            f"{self._limits.served_per_source} from one address, got one more from {source}",
            reason=Reason.CONNECTION_LIMIT,
        )
