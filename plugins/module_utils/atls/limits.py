# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bounds of a listener: what strangers may cost before and after they have shown evidence."""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import TransportError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable


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
    served: int = 256
    """Connections that have shown evidence; one more is closed at once, unless an old one can go."""
    served_per_source: int = 128
    """The same for one address."""
    served_patience_seconds: float = 30.0
    """What an attested connection gets in any case; after it the oldest goes when one more comes."""
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


def source_of(host: str) -> str:
    """Return what counts as one source: an IPv4 address, or the /64 network that one IPv6 machine has for itself."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


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
        self._slots: dict[Slot, None] = {}
        self._sources: Counter[str] = Counter()

    def __len__(self) -> int:
        """Count them."""
        return len(self._slots)

    def enter(self, source: str, give_up: Callable[[], None]) -> Slot:
        """Take a slot; where there is none, the oldest is given up for it: of this source, or of who holds the most.

        Whoever floods pays himself: from an address that holds few, a handshake ends however many come meanwhile.
        """
        if self._sources[source] >= self._limits.unverified_per_source:
            self._evict(next(slot for slot in self._slots if slot.source == source))
        elif len(self._slots) >= self._limits.unverified:
            most = max(self._sources.values())
            self._evict(next(slot for slot in self._slots if self._sources[slot.source] == most))
        slot = Slot(source, give_up)
        self._slots[slot] = None
        self._sources[source] += 1
        return slot

    def leave(self, slot: Slot) -> None:
        """Give the slot back; harmless when it was given up already."""
        if slot not in self._slots:
            return
        del self._slots[slot]
        self._sources[slot.source] -= 1
        if not self._sources[slot.source]:
            del self._sources[slot.source]

    def _evict(self, slot: Slot) -> None:
        self.leave(slot)
        slot.give_up()


class Served:
    """Attested connections by source, oldest first.

    Evidence costs a stranger with a TPM of software nothing, and then he may be silent. So where all places are taken,
    a connection that had its time for a ticket makes room; one that has not keeps its place.
    """

    def __init__(self, limits: Limits) -> None:
        """Count against ``limits``."""
        self._limits = limits
        self._slots: dict[Slot, float] = {}
        self._sources: Counter[str] = Counter()

    def __len__(self) -> int:
        """Count them."""
        return len(self._slots)

    def enter(self, source: str, give_up: Callable[[], None], *, now: float) -> Slot:
        """Take a slot at ``now`` (monotonic); raises `TransportError` CONNECTION_LIMIT where there is none."""
        if self._sources[source] >= self._limits.served_per_source:
            self._make_room(source, now, lambda slot: slot.source == source)
        elif len(self._slots) >= self._limits.served:
            self._make_room(source, now, lambda _slot: True)
        slot = Slot(source, give_up)
        self._slots[slot] = now
        self._sources[source] += 1
        return slot

    def leave(self, slot: Slot) -> None:
        """Give the slot back; harmless when it was given up already."""
        if self._slots.pop(slot, None) is None:
            return
        self._sources[slot.source] -= 1
        if not self._sources[slot.source]:
            del self._sources[slot.source]

    def _make_room(self, source: str, now: float, counts: Callable[[Slot], bool]) -> None:
        oldest = next(slot for slot in self._slots if counts(slot))
        if now - self._slots[oldest] < self._limits.served_patience_seconds:
            raise TransportError(
                f"expected at most {self._limits.served} attested connections and "
                f"{self._limits.served_per_source} from one address, got one more from {source}",
                reason=Reason.CONNECTION_LIMIT,
            )
        self.leave(oldest)
        oldest.give_up()
