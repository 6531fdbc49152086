# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limit the rate of each source by token buckets, bounded in number; a refusal says when to retry."""

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
    """Allows each source ``burst`` requests at once and ``rate`` requests a second over time.

    An unknown peer can make the control plane compute only a challenge (one elliptic curve point), and a machine can
    cause writes to the API only by a ticket; both are limited before that work. Sources behind one load balancer share
    a bucket. Several threads may use it.
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
        """Start with full buckets; ``reason`` and ``what`` are part of the refusal."""
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._reason = reason
        self._what = what
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def configure(self, *, rate: float, burst: int) -> None:
        """Change the limits; the tokens that sources have left stay."""
        with self._lock:
            self._rate, self._burst = rate, float(burst)

    def take(self, source: str) -> None:
        """Take one token of ``source``; if it has none, raises `Refusal` with the time until the next token."""
        missing = 1.0 - self._taken(source)
        if missing > 0:
            raise Refusal(
                f"expected at most {self._rate:g} {self._what}, got more from {source}",
                reason=self._reason,
                retry_after_seconds=missing / self._rate,
            )

    def left(self, source: str) -> float:
        """Return how many tokens ``source`` has left."""
        with self._lock:
            tokens, then = self._buckets.get(source, (self._burst, 0.0))
            return min(self._burst, tokens + (self._clock.monotonic() - then) * self._rate)

    def give_back(self, source: str) -> None:
        """Return a token that ``source`` took."""
        with self._lock:
            tokens, then = self._buckets.get(source, (self._burst, self._clock.monotonic()))
            self._buckets[source] = (min(self._burst, tokens + 1), then)

    def _taken(self, source: str) -> float:
        """Return the number of tokens before one was taken; none is taken if there is less than one."""
        with self._lock:
            now = self._clock.monotonic()
            tokens, then = self._buckets.pop(source, (self._burst, now))
            tokens = min(self._burst, tokens + (now - then) * self._rate)
            self._buckets[source] = (tokens - (tokens >= 1), now)
            if len(self._buckets) > _MAX_SOURCES:
                self._buckets.popitem(last=False)
            return tokens


# What counts as one source, and items by source, so that a source with too many items loses its own.

Item = TypeVar("Item", bound="Hashable")


def source_of(host: str) -> str:
    """Return what counts as one source: an IPv4 address, or the /64 network of an IPv6 address."""
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


class Shares(Generic[Item]):
    """Items by their source, oldest first; not thread-safe."""

    def __init__(self) -> None:
        """Start empty."""
        self._sources: dict[Item, str] = {}
        self._held: dict[str, dict[Item, None]] = {}

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._sources)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the items, oldest first."""
        return iter(tuple(self._sources))

    def add(self, source: str, item: Item) -> None:
        """Add ``item`` of ``source`` as the newest."""
        self._sources[item] = source
        self._held.setdefault(source, {})[item] = None

    def remove(self, item: Item) -> bool:
        """Remove ``item``; return whether it existed."""
        source = self._sources.pop(item, None)
        if source is None:
            return False
        del self._held[source][item]
        if not self._held[source]:
            del self._held[source]
        return True

    def source(self, item: Item) -> str:
        """Return the source of ``item``, which must exist."""
        return self._sources[item]

    def count(self, source: str) -> int:
        """Return the number of items of ``source``."""
        return len(self._held.get(source, ()))

    def oldest(self, source: str) -> Item:
        """Return the oldest item of ``source``, which must have one."""
        return next(iter(self._held[source]))

    def of_the_largest(self) -> Item:
        """Return the oldest item of the sources with the most items; there must be one."""
        most = max(len(held) for held in self._held.values())
        return next(item for item, source in self._sources.items() if len(self._held[source]) == most)
