# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's log and the numbers of its mappings, as they are now."""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import SystemFault
from ..reasons import Reason
from .paths import NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# Which sectors of a state disk the kernel refused to give out, read from the kernel's own words. Pure.
#
# dm-crypt says ``device-mapper: crypt: dm-0: INTEGRITY AEAD ERROR, sector 1234`` and names the mapping below its
# own, that of dm-integrity (docs/adr/0049). Other text may stand before it: some kernels write a prefix there
# that is another file's.

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
    match = _RECORD.match(record)
    if match is None or int(match["priority"]) >> _FACILITY != _KERNEL:
        return None
    refused = _REFUSED.search(match["text"])
    return int(refused["sector"]) if refused and refused["device"].decode("ascii") in devices else None


KERNEL_LOG = Path("/dev/kmsg")
BLOCK_DEVICES = Path("/sys/class/block")

_RECORD_BYTES = 1 << 14  # the kernel gives a record whole or not at all; its longest has 8 KiB
_MAPPINGS = frozenset({NAME, f"{NAME}_dif"})


class KernelLog(Protocol):
    """What the kernel still has of its log."""

    def records(self) -> Iterator[bytes]:
        """Yield each record, the oldest first; raises FILE_UNUSABLE."""


class KmsgLog:
    """The log by /dev/kmsg: one record a read (the kernel's Documentation/ABI/testing/dev-kmsg)."""

    def __init__(self, path: Path = KERNEL_LOG) -> None:
        """Keep the path."""
        self._path = path

    def records(self) -> Iterator[bytes]:
        """Yield what is there, and wait for nothing; raises FILE_UNUSABLE."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with closing(os.fdopen(descriptor, "rb", buffering=0)) as log:
                yield from _records(log.fileno())
        except OSError as error:
            raise SystemFault(f"cannot read {self._path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _records(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:  # it was written over before it was read: the next read is of the oldest that is left
            continue
        if not record:
            return
        yield record


def mapped_devices(block: Path = BLOCK_DEVICES) -> frozenset[str]:
    """Return the kernel's names (``dm-0``) of the state disk's mapping and the one below; raises FILE_UNUSABLE."""
    try:
        return frozenset(path.name for path in block.glob("dm-*") if _mapping(path) in _MAPPINGS)
    except OSError as error:
        raise SystemFault(f"cannot list {block}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _mapping(path: Path) -> str:
    try:
        return (path / "dm/name").read_text(encoding="utf-8").strip()
    except FileNotFoundError:  # taken away meanwhile
        return ""


def damage_now(log: KernelLog, block: Path = BLOCK_DEVICES) -> Damage:
    """Return what the kernel's log says of the state disk as it is mapped now; raises FILE_UNUSABLE."""
    return damage_in(log.records(), mapped_devices(block))
