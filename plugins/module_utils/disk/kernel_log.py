# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the kernel's log, and find the sectors of the state disk that failed their integrity check."""

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


# The sectors of a state disk that the kernel refused to return, from the messages of the kernel. Pure.
#
# dm-crypt logs ``device-mapper: crypt: dm-0: INTEGRITY AEAD ERROR, sector 1234`` with the name of the mapping below
# its own, which is that of dm-integrity (docs/adr/0049). Some kernels write the prefix of another source file before
# this text.

MAX_SECTORS = 1000
"""The upper bound of recorded sectors: with so many lost sectors the whole disk is lost."""

_KERNEL = 0
_FACILITY = 3  # The lower bits are the log level.
_RECORD = re.compile(rb"(?P<priority>\d{1,10}),[^;\n]{0,200};(?P<text>[^\n]*)")
_REFUSED = re.compile(
    rb"device-mapper: crypt: (?P<device>dm-\d{1,9}): INTEGRITY AEAD ERROR, sector (?P<sector>\d{1,20})\Z"
)


@dataclass(frozen=True, slots=True)
class Damage:
    """Sectors that were read and failed authentication in this boot, sorted; there may be more."""

    sectors: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there are any sectors."""
        return bool(self.sectors)

    def with_more(self, other: Damage) -> Damage:
        """Return the sectors of both, limited to the lowest `MAX_SECTORS`."""
        return Damage(tuple(sorted({*self.sectors, *other.sectors})[:MAX_SECTORS]))

    def __str__(self) -> str:
        """Return the count as text, with "at least", because the kernel limits the rate of its messages."""
        count = len(self.sectors)
        return f"at least {count} {'sector' if count == 1 else 'sectors'}"


def damage_in(records: Iterable[bytes], devices: frozenset[str]) -> Damage:
    """Return the damage of ``devices`` in ``records`` of /dev/kmsg.

    Records that processes wrote there are ignored.
    """
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

_RECORD_BYTES = 1 << 14  # A read returns one whole record or fails; the longest record has 8 KiB.
_MAPPINGS = frozenset({NAME, f"{NAME}_dif"})


class KernelLog(Protocol):
    """The log buffer of the kernel."""

    def records(self) -> Iterator[bytes]:
        """Yield each record, the oldest first; raises FILE_UNUSABLE."""


class KmsgLog:
    """Reads the log from /dev/kmsg, one record per read (Documentation/ABI/testing/dev-kmsg)."""

    def __init__(self, path: Path = KERNEL_LOG) -> None:
        """Store the path."""
        self._path = path

    def records(self) -> Iterator[bytes]:
        """Yield the existing records without waiting for new ones; raises FILE_UNUSABLE."""
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
        except BrokenPipeError:  # The record was overwritten; the next read returns the oldest remaining record.
            continue
        if not record:
            return
        yield record


def mapped_devices(block: Path = BLOCK_DEVICES) -> frozenset[str]:
    """Return the kernel's names (``dm-0``) of the state disk's two mappings; raises FILE_UNUSABLE."""
    try:
        return frozenset(path.name for path in block.glob("dm-*") if _mapping(path) in _MAPPINGS)
    except OSError as error:
        raise SystemFault(f"cannot list {block}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _mapping(path: Path) -> str:
    try:
        return (path / "dm/name").read_text(encoding="utf-8").strip()
    except FileNotFoundError:  # The mapping was removed meanwhile.
        return ""


def damage_now(log: KernelLog, block: Path = BLOCK_DEVICES) -> Damage:
    """Return the damage of the currently mapped state disk from the kernel's log; raises FILE_UNUSABLE."""
    return damage_in(log.records(), mapped_devices(block))
