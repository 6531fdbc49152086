# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the LUKS2 disk in a device, a partition, an image or a copied header, and check whether a key opens it.

The check uses a copy of the disk's beginning, and cryptsetup reads the same copy. So the disk cannot show one header to
the check and another one to cryptsetup.
"""

from __future__ import annotations

import struct
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from ..disk.luks_check import CONSTELLATION_DISK, STATE_DISK, VerifiedHeader, verify_header
from ..disk.luks_header import AREA_BYTES, Header, read_header
from ..errors import AttestedError, DiskError, SystemFault, visible
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..core.command import Runner
    from ..keyservice.master import DiskKey


# Find the partitions of a disk or a disk image: GPT (UEFI 2.10, section 5.3) and MBR, read strictly.
#
# The kernel is not involved, so an image does not have to be attached.

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


_SHAPES = {STATE_DISK.token: STATE_DISK, CONSTELLATION_DISK.token: CONSTELLATION_DISK}
OPEN = ("cryptsetup", "open", "--type", "luks2", "--disable-external-tokens", "--key-slot", "0", "--key-file", "-")
"""The key is read from standard input, and tokens of other programs are disabled."""
_LUKS2 = b"LUKS\xba\xbe\x00\x02"
_NO_KEY = 2  # cryptsetup's exit code if no slot opens
_TRY_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCopy:
    """The copied beginning of a disk: ``path`` is the copy, ``whole``: it includes the key slots.

    ``place`` is the position of the disk in ``source``; number 0 is all of it.
    """

    source: Path
    place: Partition
    path: Path
    header: Header
    whole: bool


def find_disks(source: Path) -> tuple[Partition, ...]:
    """Return where LUKS2 begins in ``source``: at its start, or at the start of partitions, by the first bytes.

    Raises FILE_UNUSABLE, PARTITION_TABLE_MALFORMED, and RESCUE_NO_DISK if there is no LUKS2.
    """
    try:
        with source.open("rb") as disk:
            begin = disk.read(AREA_BYTES)
            size = disk.seek(0, 2)
            if begin.startswith(_LUKS2):
                return (Partition(number=0, start=0, size=size),)
            partitions = read_partitions(disk)
            found = tuple(one for one in partitions if _begins_luks2(disk, one, size))
    except OSError as error:
        raise SystemFault(f"cannot read {source}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    if not found:
        table = f"{len(partitions)} partition(s)" if partitions else "no partition table"
        raise DiskError(f"expected LUKS2 in {source}, got {table} and no LUKS2 header", reason=Reason.RESCUE_NO_DISK)
    return found


def find_disk(source: Path, *, partition: int | None = None) -> Partition:
    """Return the only disk of `find_disks`, or the one in ``partition``; raises RESCUE_SEVERAL_DISKS too."""
    found = find_disks(source)
    chosen = [one for one in found if partition is None or one.number == partition]
    if len(chosen) == 1:
        return chosen[0]
    numbers = ", ".join(str(one.number) for one in found)
    reason = Reason.RESCUE_SEVERAL_DISKS if partition is None else Reason.RESCUE_NO_DISK
    wanted = "one disk" if partition is None else f"LUKS2 in partition {partition}"
    raise DiskError(f"expected {wanted} in {source}, LUKS2 begins in partition {numbers}", reason=reason)


def copy_header(source: Path, folder: Path, *, place: Partition | None = None) -> DiskCopy:
    """Copy header and key slots of the disk at ``place`` of ``source`` into ``folder``, and parse the header strictly.

    Raises FILE_UNUSABLE, and as `read_header`.
    """
    where = place or Partition(number=0, start=0, size=0)
    target = folder / "header"
    try:
        with source.open("rb") as disk:
            disk.seek(where.start)
            begin = disk.read(AREA_BYTES)
            header = read_header(begin)
            with target.open("xb") as copy:
                copy.write(begin)
                _copy_bytes(disk, copy, header.total_bytes - AREA_BYTES)
        whole = target.stat().st_size == header.total_bytes
    except OSError as error:
        raise SystemFault(f"cannot copy {source}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    return DiskCopy(source=source, place=where, path=target, header=header, whole=whole)


def judge_copy(copy: DiskCopy) -> VerifiedHeader:
    """Return the checked header, as ours or Constellation's by its token; raises as `verify_header`."""
    token = copy.header.metadata.tokens.get(0)
    return verify_header(copy.header, _SHAPES.get(token.type if token else "", CONSTELLATION_DISK))


def disk_id_of(copy: DiskCopy) -> str:
    """Return the UUID from which the key is derived."""
    return copy.header.uuid


def require_key(runner: Runner, copy: DiskCopy, key: DiskKey) -> None:
    """Raise DISK_KEY_WRONG unless ``key`` opens slot 0; this needs neither root nor device mapper.

    Raises LUKS_DAMAGED if the copy lacks the key slots, COMMAND_MISSING without cryptsetup, and COMMAND_FAILED.
    """
    if not copy.whole:
        raise DiskError(
            f"expected {copy.header.total_bytes} bytes of header and key slots in {copy.source}",
            reason=Reason.LUKS_DAMAGED,
        )
    argv = [*OPEN, "--test-passphrase", str(copy.path)]
    done = runner.run(argv, stdin=key.reveal(), timeout_seconds=_TRY_SECONDS, check=False)
    if done.returncode == _NO_KEY:
        raise DiskError(
            f"expected the derived key to open {copy.source} ({copy.header.uuid})", reason=Reason.DISK_KEY_WRONG
        )
    if done.returncode:
        output = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise SystemFault(f"cryptsetup ended with {done.returncode}: {output}", reason=Reason.COMMAND_FAILED)


def _begins_luks2(disk: BinaryIO, partition: Partition, size: int) -> bool:
    if partition.start >= size:
        return False
    disk.seek(partition.start)
    return disk.read(len(_LUKS2)) == _LUKS2


def _copy_bytes(disk: BinaryIO, copy: BinaryIO, count: int) -> None:
    while count > 0:
        part = disk.read(min(count, 1 << 20))
        if not part:
            return
        copy.write(part)
        count -= len(part)


# Open a disk read-only with its derived key and mount its file system; unmount and close it.

# The content is from another machine: none of its programs may run, and no journal is replayed.
_OPTIONS = "ro,noload,nodev,nosuid,noexec"
_OPEN_SECONDS = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """A disk that is open as ``/dev/mapper/NAME`` and mounted at ``place``."""

    name: str
    place: Path


def mount_disk(runner: Runner, copy: DiskCopy, key: DiskKey, *, place: Path) -> Mounted:
    """Open and mount the disk read-only at ``place``; after a failure nothing stays open.

    1. The copied header is checked. 2. The key opens it (DISK_KEY_WRONG). 3. The disk is opened with that copy. 4. Its
    ext4 is mounted. Raises COMMAND_FAILED, for example if the kernel lacks dm-crypt or dm-integrity.
    """
    judge_copy(copy)  # 1
    require_key(runner, copy, key)  # 2
    name = mapping_name(copy)
    with _device(runner, copy) as device:
        argv = [*OPEN, "--readonly", "--header", str(copy.path), device, name]
        runner.run(argv, stdin=key.reveal(), timeout_seconds=_OPEN_SECONDS)  # 3
    try:
        runner.run(("mount", "-t", "ext4", "-o", _OPTIONS, f"/dev/mapper/{name}", str(place)))  # 4
    except AttestedError:
        runner.run(("cryptsetup", "close", name), check=False)
        raise
    return Mounted(name=name, place=place)


@contextmanager
def _device(runner: Runner, copy: DiskCopy) -> Iterator[str]:
    """Yield the device for cryptsetup: the source itself, or a loop device over one partition of it.

    The kernel removes a detached loop device when its last user closes it, so nothing has to track it.
    """
    if copy.place.number == 0:
        yield str(copy.source)
        return
    window = ("--offset", str(copy.place.start), "--sizelimit", str(copy.place.size))
    done = runner.run(("losetup", "--find", "--show", "--read-only", *window, str(copy.source)))
    device = done.stdout.decode("ascii", "replace").strip()
    try:
        yield device
    finally:
        runner.run(("losetup", "--detach", device), check=False)


def unmount_disk(runner: Runner, *, place: Path, name: str) -> None:
    """Unmount and close the disk; raises COMMAND_FAILED if it is still in use."""
    runner.run(("umount", str(place)))
    runner.run(("cryptsetup", "close", name))


def mapping_name(copy: DiskCopy) -> str:
    """Return the name in /dev/mapper, a different one for each disk, so that two disks can be open."""
    return f"rescue-{copy.header.uuid}"
