# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often one source may ask: a token bucket each, a bounded number of buckets, and the time when to ask again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..reasons import Reason

if TYPE_CHECKING:
    from .clock import Clock

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
