# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as one source, and which of its things goes where there are too many: whoever floods pays himself."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

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
