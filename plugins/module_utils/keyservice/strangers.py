# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limit the API reads for machines that are not enrolled, because a software TPM proves any number of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.rate import TokenBuckets
from ..errors import ApiError, PolicyError
from ..policy.identity import Admission
from ..reasons import Reason

if TYPE_CHECKING:
    from ..core.host import Clock
    from .cached_policy import CachedPolicy


_EACH_RATE, _EACH_BURST = 2.0, 16
_ALL_RATE, _ALL_BURST = 10.0, 64


class Strangers:
    """Counts the API reads for keys that the cached policy does not know; known keys are never counted."""

    def __init__(self, cached: CachedPolicy, *, clock: Clock) -> None:
        """Look keys up in ``cached``; a machine over the limit is not refused for good and can ask again."""
        self._cached = cached
        self._each = _buckets(_EACH_RATE, _EACH_BURST, "API reads a second for unknown machines of one address", clock)
        self._all = _buckets(_ALL_RATE, _ALL_BURST, "API reads a second for unknown machines", clock)

    def take(self, ek_sha256: str, *, source: str) -> None:
        """Raise IDENTITY_UNKNOWN_RATE unless the API may be read now for this key from ``source``."""
        if not self._is_known(ek_sha256):
            self._each.take(source)
            self._all.take("")

    def _is_known(self, ek_sha256: str) -> bool:
        try:
            holder = self._cached.snapshot_for(ek_sha256).holder_of(ek_sha256)
        except (ApiError, PolicyError):
            return True  # without a watch no key is known, and every machine may ask
        return holder is not None and holder.admission is not Admission.PENDING


def _buckets(rate: float, burst: int, what: str, clock: Clock) -> TokenBuckets:
    return TokenBuckets(rate=rate, burst=burst, clock=clock, reason=Reason.IDENTITY_UNKNOWN_RATE, what=what)
