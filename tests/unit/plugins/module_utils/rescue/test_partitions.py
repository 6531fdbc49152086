# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partition tables of images: those that fdisk, parted and the kernel read, and those that lie."""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.disk import (
    find_disk,
    find_disks,
    read_partitions,
)
from ansible_collections.attested.kubernetes.tests.support.luks import vector
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 4 << 20
LINUX = bytes.fromhex("af3dc60f838472478e793d69d8477de4")


def mbr(*entries: tuple[int, int, int], size: int = SIZE) -> bytearray:
    """A disk with a table of (kind, first sector, sectors)."""
    disk = bytearray(size)
    disk[:512] = mbr_sector(*entries)
    return disk


def mbr_sector(*entries: tuple[int, int, int]) -> bytes:
    packed = b"".join(struct.pack("<B3sB3sII", 0, b"", kind, b"", first, count) for kind, first, count in entries)
    return bytes(446) + packed.ljust(64, b"\0") + b"\x55\xaa"


def gpt(*entries: tuple[int, int, str], sector: int = 512, **changes: int) -> bytearray:
    """A disk with both copies of a GPT of (first, last, name), one field of the headers changed."""
    disk = mbr((0xEE, 1, 0xFFFFFFFF))
    table = b"".join(
        struct.pack("<16s16sQQQ72s", LINUX, b"own", first, last, 0, name.encode("utf-16-le"))
        for first, last, name in entries
    ).ljust(128 * 128, b"\0")
    last = SIZE // sector - 1
    for here, other, at in ((1, last, 2), (last, 1, last - len(table) // sector)):
        disk[at * sector : at * sector + len(table)] = table
        disk[here * sector : here * sector + 92] = gpt_header(here, other, at, table, **changes)
    return disk


def gpt_header(own: int, other: int, first: int, table: bytes, **changes: int) -> bytes:
    fields = {"size": 92, "here": own, "at": first, "count": 128, "entry": 128, "crc": zlib.crc32(table)} | changes

    def packed(checksum: int) -> bytes:
        return struct.pack(
            "<8s4sIIIQQQQ16sQIII", b"EFI PART", b"\0\0\1\0", fields["size"], checksum, 0, fields["here"], other, 34, 99,
            b"disk", fields["at"], fields["count"], fields["entry"], fields["crc"],
        )  # fmt: skip

    return packed(zlib.crc32(packed(0)))


def found(disk: bytes | bytearray) -> list[tuple[int, int, int]]:
    return [(one.number, one.start, one.size) for one in read_partitions(io.BytesIO(bytes(disk)))]


def test_an_mbr_counts_its_four_entries() -> None:
    assert found(mbr((0x83, 2048, 8), (0, 0, 0), (0x83, 4096, 16))) == [(1, 1 << 20, 4096), (3, 2 << 20, 8192)]


def test_logical_partitions_begin_at_five() -> None:
    disk = mbr((0x83, 64, 8), (0x0F, 128, 512))
    disk[128 * 512 : 129 * 512] = mbr_sector((0x83, 2, 8), (0x05, 100, 20))
    disk[228 * 512 : 229 * 512] = mbr_sector((0x83, 3, 9))
    assert found(disk) == [(1, 64 * 512, 4096), (5, 130 * 512, 4096), (6, 231 * 512, 9 * 512)]


@pytest.mark.parametrize("sector", [512, 4096])
def test_a_gpt_of_either_sector_size(sector: int) -> None:
    disk = gpt((40, 47, "boot"), (64, 127, "Zustand"), sector=sector)
    assert found(disk) == [(1, 40 * sector, 8 * sector), (2, 64 * sector, 64 * sector)]
    assert [one.name for one in read_partitions(io.BytesIO(bytes(disk)))] == ["boot", "Zustand"]


def test_the_second_copy_counts_where_the_first_is_damaged() -> None:
    disk = gpt((40, 47, "state"))
    disk[512 + 60] ^= 1
    assert found(disk) == [(1, 40 * 512, 8 * 512)]


def test_a_gpt_without_an_mbr_is_read() -> None:
    disk = gpt((40, 47, "state"))
    disk[510] = 0
    assert found(disk) == [(1, 40 * 512, 8 * 512)]


@pytest.mark.parametrize(
    "disk",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(bytes(100), id="half a sector"),
        pytest.param(bytes(SIZE), id="zeros"),
        pytest.param(bytes(512) + b"EFI PART" + bytes(78), id="cut off inside of the header of a GPT"),
    ],
)
def test_where_there_is_no_table_there_are_no_partitions(disk: bytes) -> None:
    assert found(disk) == []


def endless() -> bytearray:
    disk = mbr((0x05, 128, 512))
    disk[128 * 512 : 129 * 512] = mbr_sector((0x83, 2, 8), (0x05, 100, 20))
    disk[228 * 512 : 229 * 512] = mbr_sector((0x83, 2, 8), (0x05, 100, 20))
    return disk


@pytest.mark.parametrize(
    "disk",
    [
        pytest.param(mbr((0xEE, 1, 100)), id="a protective MBR and no GPT"),
        pytest.param(gpt((40, 47, "a"))[:600], id="cut off inside of the header of a GPT"),
        pytest.param(gpt((40, 47, "a"), crc=7), id="a wrong checksum of the entries"),
        pytest.param(gpt((40, 47, "a"), here=9), id="a header that stands elsewhere"),
        pytest.param(gpt((40, 47, "a"), size=10), id="a header that is too small"),
        pytest.param(gpt((40, 47, "a"), count=1 << 31), id="entries without end"),
        pytest.param(gpt((40, 47, "a"), entry=4), id="entries of four bytes"),
        pytest.param(gpt((40, 47, "a"), at=1 << 62), id="entries beyond every disk"),
        pytest.param(mbr((0x05, 128, 512)), id="an extended partition without a link"),
        pytest.param(endless(), id="a chain in a circle"),
    ],
)
def test_a_table_that_lies_is_refused(disk: bytearray) -> None:
    assert code_of(lambda: found(disk)) == "PARTITION_TABLE_MALFORMED"


def with_luks(disk: bytearray, *starts: int) -> bytearray:
    for start in starts:
        disk[start : start + len(vector())] = vector()
    return disk


def test_luks2_is_found_by_its_first_bytes(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(with_luks(gpt((40, 1000, "boot"), (2048, 4095, "state")), 1 << 20))
    assert [(one.number, one.start) for one in find_disks(image)] == [(2, 1 << 20)]
    assert find_disk(image).number == 2
    image.write_bytes(vector())
    assert [(one.number, one.start) for one in find_disks(image)] == [(0, 0)]


def test_several_disks_want_a_choice(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(with_luks(gpt((2048, 4095, "a"), (4096, 8000, "b")), 1 << 20, 2 << 20))
    assert [one.number for one in find_disks(image)] == [1, 2]
    assert code_of(lambda: find_disk(image)) == "RESCUE_SEVERAL_DISKS"
    assert find_disk(image, partition=2).start == 2 << 20
    assert code_of(lambda: find_disk(image, partition=3)) == "RESCUE_NO_DISK"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(bytes(SIZE), id="zeros"),
        pytest.param(b"QFI\xfb" + bytes(SIZE), id="an image in qcow2 form"),
        pytest.param(bytes(gpt((2048, 4095, "a"))), id="a partition of something else"),
        pytest.param(bytes(gpt((1 << 40, 1 << 41, "a"))), id="a partition beyond the image"),
    ],
)
def test_where_there_is_no_luks2_it_is_said(data: bytes, tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(data)
    assert code_of(lambda: find_disks(image)) == "RESCUE_NO_DISK"


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert code_of(lambda: find_disks(tmp_path / "none")) == "FILE_UNUSABLE"
