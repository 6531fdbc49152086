# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often one source may ask: a token bucket each, a bounded number of buckets, and the time when to ask again."""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from ..errors import Refusal
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from .host import Clock


_MAX_SOURCES = 4096


class TokenBuckets:
    """Lets each source through ``burst`` times at once and ``rate`` times a second in the long run.

    A challenge is the one thing that a stranger can make the control plane do (one elliptic curve point), and a ticket
    the one thing that a machine can make the API write; both are bounded before they go further. Sources behind one
    load balancer share a bucket. May be used by several threads.
    """

    def __init__(
        self,
        *,
        rate: float,
        burst: int,
        clock: Clock,
        reason: Reason = Reason.CHALLENGE_RATE,
        what: str = "challenges a second from one address",
    ) -> None:
        """Begin with full buckets; ``reason`` and ``what`` are told to who is too fast."""
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._reason = reason
        self._what = what
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def configure(self, *, rate: float, burst: int) -> None:
        """Go on with other limits; what a source has left stays."""
        with self._lock:
            self._rate, self._burst = rate, float(burst)

    def take(self, source: str) -> None:
        """Take one token of ``source``; raises the reason, with the time of the next token, when there is none."""
        missing = 1.0 - self._taken(source)
        if missing > 0:
            raise Refusal(
                f"expected at most {self._rate:g} {self._what}, got more from {source}",
                reason=self._reason,
                retry_after_seconds=missing / self._rate,
            )

    def left(self, source: str) -> float:
        """Return how many tokens ``source`` has: fewer, the more it used lately."""
        with self._lock:
            tokens, then = self._buckets.get(source, (self._burst, 0.0))
            return min(self._burst, tokens + (self._clock.monotonic() - then) * self._rate)

    def give_back(self, source: str) -> None:
        """Return a token that ``source`` took."""
        with self._lock:
            tokens, then = self._buckets.get(source, (self._burst, self._clock.monotonic()))
            self._buckets[source] = (min(self._burst, tokens + 1), then)

    def _taken(self, source: str) -> float:
        """Return how many tokens there were, of which one was taken if there was one."""
        with self._lock:
            now = self._clock.monotonic()
            tokens, then = self._buckets.pop(source, (self._burst, now))
            tokens = min(self._burst, tokens + (now - then) * self._rate)
            self._buckets[source] = (tokens - (tokens >= 1), now)
            if len(self._buckets) > _MAX_SOURCES:
                self._buckets.popitem(last=False)
            return tokens


# What counts as one source, and which of its things goes where there are too many: whoever floods pays himself.

Thing = TypeVar("Thing", bound="Hashable")


def source_of(host: str) -> str:
    """Return what counts as one source: an IPv4 address, or the /64 network that one IPv6 machine has for itself."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


def source_of_remote(remote: str) -> str:
    """Return the source of ``address:port`` or ``[address]:port``."""
    return source_of(remote.rpartition(":")[0].strip("[]"))


class Shares(Generic[Thing]):
    """Things by the source that each came from, oldest first. For one thread, or under its owner's lock."""

    def __init__(self) -> None:
        """Begin with none."""
        self._sources: dict[Thing, str] = {}
        self._held: dict[str, dict[Thing, None]] = {}

    def __len__(self) -> int:
        """Count them."""
        return len(self._sources)

    def __iter__(self) -> Iterator[Thing]:
        """Go through them, oldest first."""
        return iter(tuple(self._sources))

    def add(self, source: str, thing: Thing) -> None:
        """Note that ``thing`` came from ``source``, after all others."""
        self._sources[thing] = source
        self._held.setdefault(source, {})[thing] = None

    def remove(self, thing: Thing) -> bool:
        """Forget ``thing``; return whether it was there."""
        source = self._sources.pop(thing, None)
        if source is None:
            return False
        del self._held[source][thing]
        if not self._held[source]:
            del self._held[source]
        return True

    def source(self, thing: Thing) -> str:
        """Return where ``thing``, which is here, came from."""
        return self._sources[thing]

    def count(self, source: str) -> int:
        """Return how many ``source`` holds."""
        return len(self._held.get(source, ()))

    def oldest(self, source: str) -> Thing:
        """Return the oldest of ``source``, which holds one at least."""
        return next(iter(self._held[source]))

    def of_the_largest(self) -> Thing:
        """Return the oldest of the sources that hold the most; there is one at least."""
        most = max(len(held) for held in self._held.values())
        return next(thing for thing, source in self._sources.items() if len(self._held[source]) == most)
