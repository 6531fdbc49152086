# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""EFI programs: what their digest covers, and every way in which a file is not one."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import (
    parse_program,
    read_image,
    room_behind,
    signature_of,
    without_time,
)
from ansible_collections.attested.kubernetes.tests.support import pe
from hypothesis import given, settings
from hypothesis import strategies as st

SECTIONS = {".text": b"code", ".data": b"x" * 600}
PLAIN = pe.program(SECTIONS)
HEADER = 64


def patched(at: int, value: bytes) -> bytes:
    return PLAIN[:at] + value + PLAIN[at + len(value) :]


def refused(data: bytes) -> str:
    with pytest.raises(PolicyError) as caught:
        parse_program(data)
    assert caught.value.code == "IMAGE_MALFORMED"
    return caught.value.message


def test_a_signature_changes_no_digest() -> None:
    signed = pe.program(SECTIONS, signature=b"signature" * 8)
    assert signed != PLAIN
    assert parse_program(signed).digest == parse_program(PLAIN).digest


def test_the_digest_covers_every_byte_but_checksum_and_signature() -> None:
    digest, optional = parse_program(PLAIN).digest, HEADER + 24
    left_out = {*range(optional + 64, optional + 68), *range(optional + 112 + 32, optional + 112 + 40)}
    for at in range(300, len(PLAIN), 7):
        changed = PLAIN[:at] + bytes([PLAIN[at] ^ 1]) + PLAIN[at + 1 :]
        if at not in left_out and at > optional + 260 + 80:
            assert parse_program(changed).digest != digest, at
    assert parse_program(patched(optional + 64, b"sums")).digest == digest


def test_what_stands_behind_the_last_section_is_covered_too() -> None:
    assert parse_program(PLAIN + b"more").digest != parse_program(PLAIN).digest


def test_a_section_is_as_long_as_it_says_without_its_padding() -> None:
    assert parse_program(PLAIN).sections == SECTIONS


@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param(b"", "a file that ends in it", id="nothing"),
        pytest.param(b"\x7fELF" + bytes(80), "another file", id="another kind of program"),
        pytest.param(PLAIN[:150], "a file that ends in it", id="half a header"),
        pytest.param(PLAIN[:-1], "beyond it", id="a section that is cut off"),
        pytest.param(patched(HEADER + 24, b"\x07\x01"), "PE32 or PE32+", id="another format"),
        pytest.param(patched(HEADER + 6, struct.pack("<H", 97)), "at most 96 sections", id="too many sections"),
        pytest.param(patched(HEADER + 24 + 108, struct.pack("<I", 4)), "directory of certificates", id="no directory"),
        pytest.param(patched(HEADER + 24 + 60, struct.pack("<I", 64)), "within the headers", id="headers too short"),
        pytest.param(
            patched(HEADER + 24 + 112 + 36, struct.pack("<I", 1 << 20)), "that overlap", id="a signature over sections"
        ),
    ],
)
def test_a_file_that_is_no_program_is_refused(data: bytes, told: str) -> None:
    assert told in refused(data)


def test_a_section_that_occurs_twice_is_refused() -> None:
    doubled = PLAIN.replace(b".data\0", b".text\0")
    assert ".text twice" in refused(doubled)


def test_sections_that_all_hold_the_whole_file_are_refused_before_they_are_copied() -> None:
    wide = pe.program({f".{number:02}": b"x" for number in range(90)} | {".end": bytes(1 << 20)})
    table = bytearray(wide)
    for number in range(90):
        at = HEADER + 24 + 112 + 16 * 8 + 40 * number
        struct.pack_into("<IIII", table, at + 8, len(wide) - 4096, 4096, len(wide) - 4096, 4096)
    data = bytes(table)
    tracemalloc.start()
    try:
        assert "that overlap" in refused(data)
        assert tracemalloc.get_traced_memory()[1] < len(data)
    finally:
        tracemalloc.stop()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=8))
def test_no_header_makes_the_parser_fail_otherwise(at: int, value: bytes) -> None:
    """Found or refused by its code: nothing else."""
    try:
        parse_program(patched(at, value))
    except PolicyError as error:
        assert error.code == "IMAGE_MALFORMED"


def test_an_image_without_a_kernel_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"with a section \.linux, got one with \.data, \.text") as caught:
        read_image(PLAIN)
    assert caught.value.code == "IMAGE_MALFORMED"


@pytest.mark.parametrize(
    ("sbat", "version"),
    [
        (pe.SBAT % 257, 257),
        (b"sbat,1\nsystemd-stub,1,The systemd Developers,systemd,258.1,https://systemd.io\n", 258),
        (b"sbat,1\nshim,4,x,y,15,z\n", 0),
        (b"systemd,1,x,y,new,z\n", 0),
        (b"\xff\xfe", 0),
    ],
)
def test_the_stub_says_its_version(sbat: bytes, version: int) -> None:
    assert read_image(pe.image(sbat=sbat)).stub == version


def test_texts_are_without_what_the_stub_strips() -> None:
    found = read_image(pe.image(cmdline=b"quiet\n\0", uname=b"6.12.1\n"))
    assert (found.command_line, found.release) == ("quiet", "6.12.1")


def test_room_is_behind_the_last_section_in_whole_pages() -> None:
    at = HEADER + 24
    found = room_behind(PLAIN)
    assert (found.address, found.step) == (-(-(4096 + 512 + 1024) // 4096) * 4096, 4096)
    based = patched(at + 24, (0x140000000).to_bytes(8, "little"))
    assert room_behind(based).address == 0x140000000 + found.address
    wide = patched(at + 32, (0x10000).to_bytes(4, "little"))
    assert (room_behind(wide).address, room_behind(wide).step) == (0x10000, 0x10000)


def test_room_of_a_32_bit_program_is_behind_its_own_base() -> None:
    header = bytearray(pe.program({}))
    optional = HEADER + 24
    struct.pack_into("<H", header, optional, 0x10B)
    struct.pack_into("<I", header, optional + 28, 0x400000)
    struct.pack_into("<I", header, optional + 92, 16)
    assert room_behind(bytes(header)).address == 0x400000


def test_time_and_checksum_are_taken_out_and_the_end_is_filled_for_a_signature() -> None:
    dated = bytearray(PLAIN + b"sym")
    dated[HEADER + 8 : HEADER + 12] = b"time"
    dated[HEADER + 24 + 64 : HEADER + 24 + 68] = b"sums"
    made = without_time(bytes(dated))
    assert made == PLAIN + b"sym" + bytes(5)
    assert without_time(made) == made


def test_the_signature_stands_behind_the_program() -> None:
    assert signature_of(pe.program(SECTIONS, signature=b"signed!!")) == b"signed!!"
    assert signature_of(PLAIN) == b""
    with pytest.raises(PolicyError):
        signature_of(b"MZ")
