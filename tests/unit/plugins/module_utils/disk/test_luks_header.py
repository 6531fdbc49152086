# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a header: the real ones are read, each of the others is refused with its code."""

from __future__ import annotations

import base64
import json
import operator
import struct
from functools import reduce
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_header import AREA_BYTES, read_header
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.tests.support.luks import (
    COPY,
    metadata,
    sealed,
    vector,
    with_bytes,
    with_json,
    with_sequence,
    with_text,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

GOOD = vector()
TEXT = GOOD[4096:COPY].rstrip(b"\0")
NAMES = (
    "state-disk-fresh",
    "state-disk",
    "state-disk-two-slots",
    "constellation",
    "constellation-plain",
    "default",
)


@pytest.mark.parametrize("name", NAMES)
def test_what_cryptsetup_wrote_is_read(name: str) -> None:
    data = vector(name)
    header = read_header(data)
    told = metadata(data)
    assert sorted(header.metadata.keyslots) == sorted(map(int, told["keyslots"]))
    assert header.metadata.segments[0].offset == int(told["segments"]["0"]["offset"])
    assert header.metadata.digests[0].value == base64.b64decode(told["digests"]["0"]["digest"])
    assert header.total_bytes == header.metadata.segments[0].offset


def test_what_follows_the_header_is_not_looked_at() -> None:
    assert read_header(GOOD + b"anything") == read_header(GOOD)


def test_a_slash_may_be_written_as_older_programs_did() -> None:
    newer = next(data for data in map(vector, NAMES) if b"/" in data[4096:COPY])
    older = with_text(newer, newer[4096:COPY].rstrip(b"\0").replace(b"/", b"\\/"))
    assert older != newer
    assert read_header(older).metadata == read_header(newer).metadata


def _swapped(text: bytes, old: bytes, new: bytes) -> bytes:
    assert old in text
    return with_text(GOOD, text.replace(old, new, 1))


BINARY: list[object] = [
    pytest.param(lambda: b"", "LUKS_DAMAGED: bytes of", id="nothing"),
    pytest.param(lambda: GOOD[: COPY - 1], "LUKS_DAMAGED: bytes of", id="the first copy cut"),
    pytest.param(lambda: GOOD[: AREA_BYTES - 1], "LUKS_DAMAGED: bytes of", id="the second copy cut"),
    pytest.param(lambda: bytes(AREA_BYTES), "LUKS_MISSING", id="zeros"),
    pytest.param(lambda: with_bytes(GOOD, 6, struct.pack(">H", 1)), "LUKS_MISSING", id="version 1"),
    pytest.param(lambda: with_bytes(GOOD, 6, struct.pack(">H", 3)), "LUKS_MISSING", id="version 3"),
    pytest.param(lambda: GOOD[:COPY] + bytes(COPY), "LUKS_MISSING", id="no second copy"),
    pytest.param(lambda: GOOD[:COPY] * 2, "LUKS_MISSING", id="the first copy twice"),
    pytest.param(
        lambda: with_bytes(GOOD, 8, struct.pack(">Q", 4 << 20)),
        "LUKS_HEADER_MALFORMED: expected a header of",
        id="4 MiB",
    ),
    pytest.param(
        lambda: with_bytes(GOOD, 8, struct.pack(">Q", 1 << 63)),
        "LUKS_HEADER_MALFORMED: expected a header of",
        id="8 EiB",
    ),
    pytest.param(
        lambda: with_bytes(GOOD, 8, struct.pack(">Q", 8192)), "LUKS_HEADER_MALFORMED: bytes at 0", id="too small"
    ),
    pytest.param(
        lambda: with_bytes(GOOD, 256, struct.pack(">Q", 512)), "LUKS_HEADER_MALFORMED: bytes at 0", id="elsewhere"
    ),
    pytest.param(lambda: with_bytes(GOOD, 72, b"sha512"), "LUKS_DAMAGED: checksum", id="another checksum"),
    pytest.param(lambda: GOOD[:448] + bytes(32) + GOOD[480:], "LUKS_DAMAGED: checksum", id="no checksum"),
    pytest.param(lambda: GOOD[:480] + b"x" + GOOD[481:], "LUKS_DAMAGED: checksum", id="something behind the checksum"),
    pytest.param(
        lambda: with_bytes(GOOD, 264, b"x"), "LUKS_HEADER_MALFORMED: zeros where", id="something in the padding"
    ),
    pytest.param(
        lambda: with_bytes(GOOD, 4095, b"x"), "LUKS_HEADER_MALFORMED: zeros where", id="something before the JSON"
    ),
    pytest.param(
        lambda: with_bytes(GOOD, 24, b"x" * 48), "LUKS_HEADER_MALFORMED: zeros as label", id="a label without an end"
    ),
    pytest.param(
        lambda: with_bytes(GOOD, 24, b"a\0b"), "LUKS_HEADER_MALFORMED: zeros as label", id="a label with two ends"
    ),
    pytest.param(
        lambda: with_bytes(GOOD, 24, b"\x1b[2J"),
        "LUKS_HEADER_MALFORMED: zeros as label",
        id="a label that clears screens",
    ),
    pytest.param(
        lambda: with_bytes(GOOD, 168, b"A"), "LUKS_HEADER_MALFORMED: lower-case UUID", id="an upper-case UUID"
    ),
    pytest.param(lambda: with_bytes(GOOD, 168, bytes(40)), "LUKS_HEADER_MALFORMED: lower-case UUID", id="no UUID"),
    pytest.param(
        lambda: with_sequence(GOOD, 1, copies=(1,)), "LUKS_DAMAGED: two equal copies", id="an older second copy"
    ),
    pytest.param(lambda: with_bytes(GOOD, 168, b"2", copies=(0,)), "LUKS_DAMAGED: two equal copies", id="two UUIDs"),
    pytest.param(
        lambda: with_json(GOOD, lambda one: one["tokens"].clear(), copies=(1,)),
        "LUKS_DAMAGED: two equal copies",
        id="two texts",
    ),
]


@pytest.mark.parametrize(("make", "code"), BINARY)
def test_a_binary_part_that_is_not_cryptsetups_is_refused(make: Callable[[], bytes], code: str) -> None:
    assert code_of(lambda: read_header(make())) == code


DEEP = b'{"config":' * 9 + b"0" + b"}" * 9
JSON: list[object] = [
    pytest.param(lambda: with_text(GOOD, b""), id="empty"),
    pytest.param(lambda: with_text(GOOD, b"[]"), id="a list"),
    pytest.param(lambda: with_text(GOOD, TEXT[:-1]), id="cut"),
    pytest.param(lambda: with_text(GOOD, TEXT + b" "), id="a blank behind it"),
    pytest.param(lambda: with_text(GOOD, TEXT + b"\0{}"), id="a second text behind a zero"),
    pytest.param(lambda: with_text(GOOD, TEXT.ljust(COPY - 4096, b" ")), id="no zero at the end"),
    pytest.param(lambda: with_text(GOOD, DEEP), id="nine levels"),
    pytest.param(lambda: with_text(GOOD, b"[" * 12000), id="twelve thousand brackets"),
    pytest.param(lambda: with_text(GOOD, b'{"a":"' + b"[" * 12000 + b'"}'), id="brackets in a text"),
    pytest.param(lambda: with_text(GOOD, b"\xff" + TEXT), id="no ASCII"),
    pytest.param(lambda: _swapped(TEXT, b'{"keyslots"', b'{"tokens":{},"keyslots"'), id="a key twice"),
    pytest.param(lambda: _swapped(TEXT, b'"type"', b'"t\\u0079pe"'), id="a letter written as a number"),
    pytest.param(lambda: _swapped(TEXT, b'"luks2"', b'"luks2\\u0000x"'), id="a zero in a text"),
    pytest.param(lambda: _swapped(TEXT, b":4000", b":4000.0"), id="a fraction"),
    pytest.param(lambda: _swapped(TEXT, b":4000", b":4e3"), id="an exponent"),
    pytest.param(lambda: _swapped(TEXT, b":4000", b":NaN"), id="no number"),
    pytest.param(lambda: _swapped(TEXT, b":4000", b":-4000"), id="a negative number"),
    pytest.param(lambda: _swapped(TEXT, b":4000", b":" + b"9" * 5000), id="a number of 5000 digits"),
    pytest.param(lambda: _swapped(TEXT, b'{"keyslots"', b'{ "keyslots"'), id="a blank"),
    pytest.param(lambda: _swapped(TEXT, b'{"keyslots"', b'/**/{"keyslots"'), id="a comment"),
]


@pytest.mark.parametrize("make", JSON)
def test_json_that_two_readers_could_understand_differently_is_refused(make: Callable[[], bytes]) -> None:
    assert code_of(lambda: read_header(make())) == "LUKS_HEADER_MALFORMED: JSON"


def _edit(*path: str, to: object) -> Callable[[dict], None]:
    def edit(members: dict) -> None:
        for name in path[:-1]:
            members = members[name]
        members[path[-1]] = to

    return edit


def _without(*path: str) -> Callable[[dict], None]:
    def edit(members: dict) -> None:
        for name in path[:-1]:
            members = members[name]
        del members[path[-1]]

    return edit


def _paths(value: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for name, inner in value.items():
            found += _paths(inner, (*path, name))
    return found


SLOT, SEGMENT, DIGEST, TOKEN = ("keyslots", "0"), ("segments", "0"), ("digests", "0"), ("tokens", "0")
# a section may be empty, integrity may be left out, and a token's own members are the judge's
FREE = {SLOT, SEGMENT, DIGEST, TOKEN, (*SEGMENT, "integrity"), (*TOKEN, "version"), (*TOKEN, "initialised")}
MEMBERS = [path for path in _paths(metadata(GOOD)) if path not in FREE]
OBJECTS = [
    path
    for path in [(), *_paths(metadata(GOOD))]
    if path != TOKEN and isinstance(reduce(operator.getitem, path, metadata(GOOD)), dict)
]


@pytest.mark.parametrize("path", MEMBERS, ids=".".join)
def test_no_field_may_be_missing_or_of_another_type(path: tuple[str, ...]) -> None:
    assert code_of(lambda: read_header(with_json(GOOD, _without(*path)))) == "LUKS_HEADER_MALFORMED: field"
    for other in (None, True, [[]]):
        code = code_of(lambda other=other: read_header(with_json(GOOD, _edit(*path, to=other))))
        allowed = ("LUKS_HEADER_MALFORMED: field", "LUKS_HEADER_FOREIGN: expected a segment")
        assert any(code == one for one in allowed)


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: ".".join(path) or "the whole")
def test_no_field_may_be_added(path: tuple[str, ...]) -> None:
    assert code_of(lambda: read_header(with_json(GOOD, _edit(*path, "more", to=1)))) == "LUKS_HEADER_MALFORMED: field"


FIELDS: list[object] = [
    pytest.param(
        _edit(*SLOT, "type", to="reencrypt"), "LUKS_HEADER_FOREIGN: no re-encryption", id="a slot of a re-encryption"
    ),
    pytest.param(
        _edit(*SEGMENT, "flags", to=["in-reencryption"]),
        "LUKS_HEADER_FOREIGN: no re-encryption",
        id="a segment re-encrypted",
    ),
    pytest.param(
        _edit(*SEGMENT, "flags", to=[]),
        "LUKS_HEADER_FOREIGN: no re-encryption",
        id="a segment with no flags, but a list",
    ),
    pytest.param(
        _edit(*SEGMENT, "type", to="linear"), "LUKS_HEADER_FOREIGN: expected a segment", id="a segment in clear"
    ),
    pytest.param(
        _edit(*SEGMENT, "type", to="hw-opal-crypt"),
        "LUKS_HEADER_FOREIGN: expected a segment",
        id="a segment that a disk encrypts",
    ),
    pytest.param(
        _edit(*SEGMENT, "size", to="4096"), "LUKS_HEADER_FOREIGN: expected a segment", id="a part of the disk"
    ),
    pytest.param(_edit(*SEGMENT, "size", to=4096), "LUKS_HEADER_FOREIGN: expected a segment", id="a number as size"),
    pytest.param(
        _edit(*SEGMENT, "integrity", "journal_integrity", to="hmac(sha256)"),
        "LUKS_HEADER_FOREIGN: integrity by",
        id="journal",
    ),
    pytest.param(_edit("keyslots", "00", to={}), "LUKS_HEADER_MALFORMED: field", id="a slot numbered 00"),
    pytest.param(_edit("keyslots", "32", to={}), "LUKS_HEADER_MALFORMED: field", id="a slot numbered 32"),
    pytest.param(_edit("keyslots", "²", to={}), "LUKS_HEADER_MALFORMED: JSON", id="a slot numbered by a superscript"),
    pytest.param(_edit("keyslots", "9" * 5000, to={}), "LUKS_HEADER_MALFORMED: field", id="a slot with a long number"),
    pytest.param(
        _edit(*DIGEST, "keyslots", to=["0", "0"]), "LUKS_HEADER_MALFORMED: field", id="a slot twice in a digest"
    ),
    pytest.param(_edit(*SEGMENT, "offset", to="0x1000"), "LUKS_HEADER_MALFORMED: field", id="a hexadecimal offset"),
    pytest.param(
        _edit(*SEGMENT, "offset", to="016777216"), "LUKS_HEADER_MALFORMED: field", id="an offset with a zero before it"
    ),
    pytest.param(_edit(*SEGMENT, "offset", to="9" * 30), "LUKS_HEADER_MALFORMED: field", id="an offset of 30 digits"),
    pytest.param(_edit(*DIGEST, "salt", to="AAAA AAAA"), "LUKS_HEADER_MALFORMED: field", id="a blank in base64"),
    pytest.param(_edit(*DIGEST, "salt", to="AAB="), "LUKS_HEADER_MALFORMED: field", id="base64 with bits to spare"),
    pytest.param(_edit(*SLOT, "kdf", "type", to="scrypt"), "LUKS_HEADER_MALFORMED: field", id="another key derivation"),
    pytest.param(
        _edit(*SLOT, "area", "type", to="checksum"), "LUKS_HEADER_MALFORMED: field", id="an area of a re-encryption"
    ),
    pytest.param(
        _edit("config", "json_size", to="4096"), "LUKS_HEADER_FOREIGN: layout", id="two sizes of the JSON area"
    ),
    pytest.param(
        _edit("config", "requirements", to={"optional": []}), "LUKS_HEADER_MALFORMED: field", id="other requirements"
    ),
]


@pytest.mark.parametrize(("edit", "code"), FIELDS)
def test_what_no_state_disk_has_is_refused_where_it_stands(edit: Callable[[dict], None], code: str) -> None:
    assert code_of(lambda: read_header(with_json(GOOD, edit))) == code


def test_every_bit_of_the_binary_parts_counts() -> None:
    for start in (0, COPY):
        for bit in range(512 * 8):
            changed = bytearray(GOOD)
            changed[start + bit // 8] ^= 1 << bit % 8
            with pytest.raises(AttestedError):
                read_header(bytes(changed))


@settings(max_examples=300, deadline=None)
@given(bit=st.integers(0, AREA_BYTES * 8 - 1))
def test_every_bit_counts(bit: int) -> None:
    changed = bytearray(GOOD)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(AttestedError):
        read_header(bytes(changed))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_text_with_one_letter_changed_says_the_same_or_is_refused_or_differs(data: st.DataObject) -> None:
    """Whatever is read from a changed text is what the standard library reads from it: no second meaning."""
    at = data.draw(st.integers(0, len(TEXT) - 1))
    letter = data.draw(st.integers(1, 127))
    text = TEXT[:at] + bytes([letter]) + TEXT[at + 1 :]
    changed = with_text(GOOD, text)
    try:
        header = read_header(changed)
    except AttestedError:
        return
    told = json.loads(text)
    assert header.metadata.segments[0].cipher == told["segments"]["0"]["encryption"]
    assert header.metadata.keyslots[0].kdf.cost == told["keyslots"]["0"]["kdf"]["iterations"]


def test_the_helpers_make_good_headers() -> None:
    assert sealed(GOOD) == GOOD
    assert with_text(GOOD, TEXT) == GOOD
    assert with_json(GOOD, lambda _members: None) == GOOD
