# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which control plane is dialled next. Pure: the caller says what happened, and when.

the one that answered last → the others, those that rest after a failure last → whatever is behind a name (the caller's)

A rest grows from one second to half a minute with each failure in a row. Nobody is ever left out: where all rest, the
one whose rest ends first is dialled first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 30.0
_MAX_DOUBLINGS = 5


@dataclass(slots=True)
class _Record:
    failures: int = 0
    rests_until: float = 0.0


@dataclass(slots=True)
class Choice:
    """What is known of each address (host:port, the host an IP address); times are seconds of one monotonic clock.

    ``addresses`` are dialled in this order at first; shuffle them, so that workers do not all begin with one.
    ``latest`` is the one that answered last; it may stand in no list, having been found by a name.
    """

    addresses: tuple[str, ...] = ()
    latest: str | None = None
    _records: dict[str, _Record] = field(default_factory=dict)

    def order(self, now: float) -> tuple[str, ...]:
        """Return whom to dial, first to last, each once."""
        known = tuple(dict.fromkeys((self.latest, *self.addresses) if self.latest else self.addresses))
        rested = [address for address in known if self._until(address) <= now]
        resting = sorted((address for address in known if self._until(address) > now), key=self._until)
        return (*rested, *resting)

    def answered(self, address: str) -> None:
        """Note that ``address`` sent something: it is the first choice from now on."""
        self._records.pop(address, None)
        self.latest = address

    def failed(self, address: str, now: float) -> bool:
        """Note that nothing came of ``address``: it rests, longer each time; return whether this begins a row."""
        record = self._records.setdefault(address, _Record())
        record.rests_until = now + min(FIRST_REST_SECONDS * 2.0**record.failures, LONGEST_REST_SECONDS)
        record.failures = min(record.failures + 1, _MAX_DOUBLINGS)
        return record.failures == 1

    def replace(self, addresses: Sequence[str]) -> None:
        """Take another list; an empty one leaves the last good one. What is known of who stays, stays."""
        if not addresses:
            return
        self.addresses = tuple(addresses)
        if self.latest not in self.addresses:
            self.latest = None
        self._records = {address: record for address, record in self._records.items() if address in self.addresses}

    def _until(self, address: str) -> float:
        record = self._records.get(address)
        return 0.0 if record is None else record.rests_until
