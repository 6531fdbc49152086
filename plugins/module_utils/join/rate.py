# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often one address may ask for a challenge: a token bucket each, and a bounded number of buckets. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..reasons import Reason

if TYPE_CHECKING:
    from ..system import Clock

_MAX_SOURCES = 4096


class TokenBuckets:
    """Lets each source through ``burst`` times at once and ``rate`` times a second in the long run.

    A challenge is the one thing that a stranger can make the control plane do (one API read, one elliptic curve
    point), so it is bounded before it goes further. Sources behind one load balancer share a bucket.
    """

    def __init__(self, *, rate: float, burst: int, clock: Clock, reason: Reason = Reason.CHALLENGE_RATE) -> None:
        """Begin with full buckets; ``reason`` is what one that asks too often is refused with."""
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._reason = reason
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, source: str) -> None:
        """Take one token of ``source``; raises CHALLENGE_RATE, or the reason given, when there is none."""
        now = self._clock.monotonic()
        tokens, then = self._buckets.pop(source, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        allowed = tokens >= 1
        self._buckets[source] = (tokens - allowed, now)
        if len(self._buckets) > _MAX_SOURCES:
            self._buckets.popitem(last=False)
        if not allowed:
            raise Refusal(
                f"expected at most {self._rate:g} challenges a second from one address, got more from {source}",
                reason=self._reason,
            )
