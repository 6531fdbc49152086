# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the partitions of a disk or a disk image: GPT (UEFI 2.10, section 5.3) and MBR, read strictly.

The kernel is not involved, so an image does not have to be attached.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from ..errors import DiskError, visible
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTOR_SIZES = (512, 4096)

_GPT = struct.Struct("<8s4sIIIQQQQ16sQIII")
_GPT_MAGIC = b"EFI PART"
_GPT_ENTRY = struct.Struct("<16s16sQQQ72s")
_MAX_ENTRIES = 1024
_MAX_ENTRY_BYTES = 4096
_MBR_ENTRY = struct.Struct("<B3sB3sII")
_MBR_AT, _MBR_ENTRIES, _MBR_SIGNATURE_AT = 446, 4, 510
_PROTECTIVE = 0xEE
_EXTENDED = frozenset({0x05, 0x0F, 0x85})
_MAX_LOGICAL = 128
_SECTOR = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A range of bytes of a disk; ``number`` as the kernel counts, 0 for a disk without a table."""

    number: int
    start: int
    size: int
    name: str = ""


def read_partitions(disk: BinaryIO) -> tuple[Partition, ...]:
    """Return the partitions of the table on ``disk``, () if it has no table.

    If the first copy of a GPT is damaged, the second copy is used. Raises PARTITION_TABLE_MALFORMED if no copy of a
    table is valid, or if a chain of partitions does not end.
    """
    end = disk.seek(0, 2)
    begin = _read(disk, 0, _SECTOR)
    if len(begin) < _SECTOR or begin[_MBR_SIGNATURE_AT:] != b"\x55\xaa":
        return _gpt(disk, end) or ()
    entries = list(_mbr_entries(begin))
    if any(kind == _PROTECTIVE for kind, _first, _count in entries):
        found = _gpt(disk, end)
        if found is None:
            raise _malformed("a GPT after the protective MBR, both copies are invalid")
        return found
    return tuple(_mbr(disk, entries))


def _gpt(disk: BinaryIO, end: int) -> tuple[Partition, ...] | None:
    """Return the partitions of the first valid copy, None if there is none."""
    for sector in SECTOR_SIZES:
        for at in (sector, end // sector * sector - sector):
            header = _read(disk, at, sector)
            if len(header) < sector or not header.startswith(_GPT_MAGIC):
                continue
            if (found := _gpt_copy(disk, header, at, sector)) is not None:
                return found
    return None


def _gpt_copy(disk: BinaryIO, header: bytes, at: int, sector: int) -> tuple[Partition, ...] | None:
    """Return the partitions of one copy, None unless size, position, limits and both checksums are right."""
    _magic, _revision, size, checksum, _zero, here, *_rest = _GPT.unpack_from(header)
    entries_at, count, entry_bytes, entries_checksum = _rest[-4:]
    if not _GPT.size <= size <= sector or here != at // sector:
        return None
    if zlib.crc32(header[:16] + bytes(4) + header[20:size]) != checksum:
        return None
    if count > _MAX_ENTRIES or not _GPT_ENTRY.size <= entry_bytes <= _MAX_ENTRY_BYTES or entry_bytes % 8:
        return None
    table = _read(disk, entries_at * sector, count * entry_bytes)
    if len(table) != count * entry_bytes or zlib.crc32(table) != entries_checksum:
        return None
    return tuple(_gpt_entries(table, entry_bytes, sector))


def _gpt_entries(table: bytes, entry_bytes: int, sector: int) -> Iterator[Partition]:
    for index in range(len(table) // entry_bytes):
        kind, _own, first, last, _flags, name = _GPT_ENTRY.unpack_from(table, index * entry_bytes)
        if any(kind) and first <= last:
            yield Partition(number=index + 1, start=first * sector, size=(last - first + 1) * sector, name=_name(name))


def _name(field: bytes) -> str:
    text = field.decode("utf-16-le", "replace").partition("\0")[0]
    return visible(text.replace("\n", " "))


def _mbr(disk: BinaryIO, entries: list[tuple[int, int, int]]) -> Iterator[Partition]:
    for number, (kind, first, count) in enumerate(entries, 1):
        if kind in _EXTENDED:
            yield from _logical(disk, first)
        elif kind and count:
            yield Partition(number=number, start=first * _SECTOR, size=count * _SECTOR)


def _logical(disk: BinaryIO, extended: int) -> Iterator[Partition]:
    """Follow the chain of an extended partition: each link has one partition and the position of the next link."""
    link = extended
    for number in range(_MBR_ENTRIES + 1, _MBR_ENTRIES + 1 + _MAX_LOGICAL):
        sector = _read(disk, link * _SECTOR, _SECTOR)
        if len(sector) < _SECTOR or sector[_MBR_SIGNATURE_AT:] != b"\x55\xaa":
            raise _malformed(f"a link of the extended partition at sector {link}")
        (kind, first, count), (_kind, following, _count) = list(_mbr_entries(sector))[:2]
        if kind and count:
            yield Partition(number=number, start=(link + first) * _SECTOR, size=count * _SECTOR)
        if not following:
            return
        link = extended + following
    raise _malformed(f"at most {_MAX_LOGICAL} logical partitions, the chain is longer")


def _mbr_entries(sector: bytes) -> Iterator[tuple[int, int, int]]:
    for index in range(_MBR_ENTRIES):
        _flag, _first, kind, _last, first, count = _MBR_ENTRY.unpack_from(sector, _MBR_AT + index * _MBR_ENTRY.size)
        yield kind, first, count


def _read(disk: BinaryIO, at: int, size: int) -> bytes:
    if at < 0 or at >= 1 << 63:
        return b""
    disk.seek(at)
    return disk.read(size)


def _malformed(expected: str) -> DiskError:
    return DiskError(f"expected {expected}", reason=Reason.PARTITION_TABLE_MALFORMED)
