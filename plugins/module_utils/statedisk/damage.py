# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which sectors of a state disk the kernel refused to give out, read from the kernel's own words. Pure.

dm-crypt says ``device-mapper: crypt: dm-0: INTEGRITY AEAD ERROR, sector 1234`` and names the mapping below its
own, that of dm-integrity (docs/adr/0049). Other text may stand before it: some kernels write a prefix there
that is another file's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SECTORS = 1000
"""No more are remembered: whoever has lost so many has lost the disk."""

_KERNEL = 0
_FACILITY = 3  # the lower bits say how bad it is
_RECORD = re.compile(rb"(?P<priority>\d{1,10}),[^;\n]{0,200};(?P<text>[^\n]*)")
_REFUSED = re.compile(
    rb"device-mapper: crypt: (?P<device>dm-\d{1,9}): INTEGRITY AEAD ERROR, sector (?P<sector>\d{1,20})\Z"
)


@dataclass(frozen=True, slots=True)
class Damage:
    """Sectors that were read in this boot and did not authenticate, in their order; at least these."""

    sectors: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.sectors)

    def with_more(self, other: Damage) -> Damage:
        """Return both, the lowest `MAX_SECTORS` of them."""
        return Damage(tuple(sorted({*self.sectors, *other.sectors})[:MAX_SECTORS]))

    def __str__(self) -> str:
        """Say how many: the kernel writes no more than some lines in some seconds, so there may be others."""
        count = len(self.sectors)
        return f"at least {count} {'sector' if count == 1 else 'sectors'}"


def damage_in(records: Iterable[bytes], devices: frozenset[str]) -> Damage:
    """Return what ``records`` of /dev/kmsg say of ``devices``; what a process wrote there is not the kernel's word."""
    found = (_sector(record, devices) for record in records)
    return Damage().with_more(Damage(tuple(sector for sector in found if sector is not None)))


def _sector(record: bytes, devices: frozenset[str]) -> int | None:
    said = _RECORD.match(record)
    if said is None or int(said["priority"]) >> _FACILITY != _KERNEL:
        return None
    refused = _REFUSED.search(said["text"])
    return int(refused["sector"]) if refused and refused["device"].decode("ascii") in devices else None
