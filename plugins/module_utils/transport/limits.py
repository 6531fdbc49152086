# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of a listener: the resources that unknown peers can use before and after they have shown evidence.

Evidence over a nonce is free for a peer with a software TPM. So places are shared by source (`core.rate.Shares`): if
all are taken, the source with the most places loses one. A peer keeps its place once it is proven, which means that one
of its calls was granted. Then its source, and its key if it showed one, are remembered.
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
    """Limits of one listener; the defaults serve a few hundred machines that boot at once.

    An unverified connection costs about 25 KB, a served one about 100 KB.
    """

    unverified: int = 512
    """Connections without evidence yet; for one more, the oldest of the address with the most is closed."""
    unverified_per_source: int = 256
    """The same for one address; large, since many machines may share the address of a load balancer."""
    arrivals_per_second: float = 20.0
    """New connections of one address over time; one more is closed before any work is done for it."""
    arrival_burst: int = 512
    """The same at once: as many as there are places, so that many machines behind one address can connect."""
    newcomers_per_second: float = 10.0
    """TLS handshakes of all sources that are not proven together; more wait.

    An unknown peer costs about 5 ms until it is closed. Peers that become proven do not count, so many machines connect
    as fast as they get tickets.
    """
    newcomer_burst: int = 64
    """The same at once."""
    served: int = 256
    """Connections that have shown evidence; one more is closed at once unless another can be closed for it."""
    served_per_source: int = 128
    """The same for one address that is not proven."""
    reserved: int = 64
    """The number of these places that are reserved for proven keys."""
    served_per_key: int = 4
    """Places of one such key; more connections of the key count as those of an unknown peer."""
    served_patience_seconds: float = 30.0
    """The age from which an attested connection can be closed for another of the same source."""
    unproven_seconds: float = 15.0
    """The lifetime of an attested connection until one of its calls is granted; a running call may end first."""
    unproven_calls: int = 8
    """The number of its calls until then."""
    refused_seconds: float = 1.0
    """The time for sending the response of a refused call; nothing more is read from the connection."""
    handshake_seconds: float = 10.0
    """From the first byte to the end of the TLS handshake, in which the peer's TPM quotes; slow TPMs need seconds."""
    judging_seconds: float = 10.0
    """The time to verify evidence, including the wait for a free worker."""
    judging_workers: int = 2
    """The number of threads that verify or issue evidence."""
    judges_inline: bool = False
    """Verify on the event loop: for a validator that never waits and is faster than a change of threads (0.3 ms)."""
    handshake_bytes: int = 98_304
    """The most bytes of a peer before it is served; OpenSSL allows 100 KB of certificates."""
    rejected_seconds: float = 10.0
    """The lifetime of a rejected peer's connection."""
    rejection_floor_seconds: float = 0.25
    """The least time from the first byte to a rejection, so that its time does not reveal its cause."""
    linger_seconds: float = 5.0
    """The time in which the peer of a closed connection must read the data that is left to send."""
    served_seconds: float = 300.0
    """The lifetime of one attested connection, since its evidence gets old."""


class Remembered(Generic[Item]):
    """A bounded set of the items that were added last."""

    def __init__(self, limit: int = _REMEMBERED) -> None:
        """Keep ``limit`` items."""
        self._limit = limit
        self._items: OrderedDict[Item, None] = OrderedDict()

    def __contains__(self, item: object) -> bool:
        """Return whether ``item`` is in the set."""
        return item in self._items

    def add(self, item: Item) -> None:
        """Add ``item`` as the latest, and drop the oldest item if there are too many."""
        self._items[item] = None
        self._items.move_to_end(item)
        if len(self._items) > self._limit:
            self._items.popitem(last=False)


@dataclass(eq=False, slots=True)
class Slot:
    """The place of one connection that is not verified yet."""

    source: str
    give_up: Callable[[], None]


class Unverified:
    """The connections without evidence yet, oldest first."""

    def __init__(self, limits: Limits) -> None:
        """Count against ``limits``."""
        self._limits = limits
        self._slots: Shares[Slot] = Shares()

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._slots)

    def enter(self, source: str, give_up: Callable[[], None]) -> Slot:
        """Return a slot; if none is free, close the oldest connection of this source or of the source with the most.

        So a flood closes connections of its own source, and handshakes from sources with few connections complete.
        """
        if self._slots.count(source) >= self._limits.unverified_per_source:
            self._evict(self._slots.oldest(source))
        elif len(self._slots) >= self._limits.unverified:
            self._evict(self._slots.of_the_largest())
        slot = Slot(source, give_up)
        self._slots.add(source, slot)
        return slot

    def leave(self, slot: Slot) -> None:
        """Free the slot; does nothing if it is free already."""
        self._slots.remove(slot)

    def _evict(self, slot: Slot) -> None:
        self.leave(slot)
        slot.give_up()


class Pace:
    """Limits the rate of newcomers' handshakes; sources that used the least of their own rate lately go first."""

    def __init__(self, limits: Limits, *, left: Callable[[str], float], clock: Clock) -> None:
        """Order the waiting newcomers by what their source has ``left`` of its own rate."""
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
        """Return the number of waiting newcomers."""
        return sum(not turn.done() for _left, _number, turn in self._waiting)

    async def turn(self, source: str, closed: asyncio.Future[None]) -> None:
        """Wait until a newcomer from ``source`` may begin its handshake.

        Raises `TransportError` CONNECTION_CLOSED once its connection is ``closed``: it then uses up no turn.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(_closed: asyncio.Future[None]) -> None:
            if not turn.done():
                turn.set_exception(
                    TransportError(
                        "expected a peer that waits for its handshake, its connection was closed",
                        reason=Reason.CONNECTION_CLOSED,
                        retryable=True,
                    )
                )

        closed.add_done_callback(end)
        try:
            heapq.heappush(self._waiting, (-self._left(source), next(self._numbers), turn))
            if self._timer is None:
                self._serve()
            await turn
        finally:
            closed.remove_done_callback(end)

    def proven(self) -> None:
        """Give one token back, since a newcomer became proven, and let the next one begin."""
        self._tokens.give_back("")
        if self._timer is not None:
            self._timer.cancel()
            self._serve()

    def _serve(self) -> None:
        """Let as many newcomers begin as the rate allows, and set a timer for the others."""
        self._timer = None
        try:
            while self._waiting:
                if not self._waiting[0][2].done():  # a cancelled newcomer needs no token
                    self._tokens.take("")
                    self._waiting[0][2].set_result(None)
                heapq.heappop(self._waiting)
        except Refusal as refusal:
            wait = max(refusal.retry_after_seconds, 1 / self._rate / 2)
            self._timer = asyncio.get_running_loop().call_later(wait, self._serve)


@dataclass(eq=False, slots=True, kw_only=True)
class Seat:
    """The place of one attested connection and its calls; a `grpc_server.Caller` for the server behind the relay.

    ``key`` names the peer's key (empty if evidence is not required). ``is_known``: this key was proven before, or a
    call of this connection was granted. ``shut`` stops reading from the connection; ``proven`` is called with the seat
    when a call is granted.
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
        """Count one complete request; raises `Refusal` CALL_LIMIT if an unproven connection has no calls left."""
        if not self.is_known:
            if not self.calls_left:
                raise Refusal(
                    "expected no more calls on a connection without a granted call, got one more",
                    reason=Reason.CALL_LIMIT,
                )
            self.calls_left -= 1
        self.running += 1

    def end(self) -> None:
        """Count the end of a request whose response is decided."""
        self.running -= 1

    def prove(self) -> None:
        """Report that a call was granted."""
        self.proven(self)

    def refused(self) -> None:
        """Close an unproven connection after a refused call, so that another attempt needs a handshake."""
        if not self.is_known:
            self.shut()

    def release(self) -> None:
        """Drop the references to the ended connection: a call's context may keep this seat for longer."""
        self.give_up = self.shut = lambda: None


class Served:
    """The attested connections: those of unknown peers by source, those with a proven key by key."""

    def __init__(self, limits: Limits, *, proven: Callable[[], None] = lambda: None) -> None:
        """Count against ``limits``; ``proven`` is called at the first granted call of each source."""
        self._limits = limits
        self._proven = proven
        self._strangers: Shares[Seat] = Shares()
        self._known: Shares[Seat] = Shares()
        self._keys: Remembered[bytes] = Remembered()
        self._sources: Remembered[str] = Remembered()

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._strangers) + len(self._known)

    @property
    def unproven(self) -> int:
        """The number of connections without a granted call or a proven key."""
        return len(self._strangers)

    def knows(self, source: str) -> bool:
        """Return whether a call from ``source`` was granted lately."""
        return source in self._sources

    def enter(self, source: str, give_up: Callable[[], None], *, now: float, key: bytes = b"") -> Seat:
        """Return a seat, taken at ``now`` (monotonic); raises `TransportError` CONNECTION_LIMIT if none is free."""
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
        """Free the seat; does nothing if it is free already."""
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
        """Close a connection of the source with the most if that is another one, else the oldest of ``source``.

        Connections without a running call are closed first.
        """
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
