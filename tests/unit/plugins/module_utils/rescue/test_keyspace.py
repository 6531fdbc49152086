# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""etcd's database file: one built by hand here, page by page, and the same with one thing changed."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.extract import (
    Entry,
    bucket,
    entries,
    open_database,
    open_keyspace,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 4096
BRANCH, LEAF, META, FREE = 1, 2, 4, 16


def revision(main: int, sub: int = 0, *, deleted: bool = False) -> bytes:
    return struct.pack(">QcQ", main, b"_", sub) + (b"t" if deleted else b"")


def stored(key: bytes, value: bytes, version: int = 1) -> bytes:
    def piece(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    return piece(1, key) + b"\x10\x02\x18\x03" + bytes([4 << 3, version]) + piece(5, value) + b"\x30\x00"


def page(number: int, kind: int, body: bytes, *, count: int = 0, overflow: int = 0) -> bytes:
    return (struct.pack("<QHHI", number, kind, count, overflow) + body).ljust(PAGE * (overflow + 1), b"\0")


def leaf(number: int, *items: tuple[bytes, bytes], flags: int = 0, overflow: int = 0) -> bytes:
    head, rest = b"", b""
    for index, (key, value) in enumerate(items):
        offset = (len(items) - index) * 16 + len(rest)
        head += struct.pack("<IIII", flags, offset, len(key), len(value))
        rest += key + value
    return page(number, LEAF, head + rest, count=len(items), overflow=overflow)


def branch(number: int, *children: int) -> bytes:
    body = b"".join(struct.pack("<IIQ", 0, 0, child) for child in children)
    return page(number, BRANCH, body, count=len(children))


def meta(number: int, root: int, transaction: int) -> bytes:
    body = struct.pack("<IIIIQQQQQ", 0xED0CDAED, 2, PAGE, 0, root, 0, 2, 99, transaction)
    value = 0xCBF29CE484222325
    for byte in body:
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    return page(number, META, body + struct.pack("<Q", value))


OLD = stored(b"/registry/a", b"old")
NEW = stored(b"/registry/a", b"new", 2)
GONE = stored(b"/registry/b", b"gone")
LONG = stored(b"/other", b"x" * 100)
FIRST = leaf(5, (revision(2), OLD), (revision(3), GONE))
SECOND = leaf(6, (revision(4), NEW), (revision(5, deleted=True), stored(b"/registry/b", b"")), (revision(6), LONG))


def database(*, first: bytes = FIRST, second: bytes = SECOND, tree: bytes | None = None) -> bytes:
    """Two heads (the second is newer), a free list, the buckets, a branch, and two leaves."""
    buckets = leaf(3, (b"key", struct.pack("<QQ", 4, 0)), (b"meta", struct.pack("<QQ", 0, 0)), flags=1)
    return b"".join((meta(0, 9, 7), meta(1, 3, 8), page(2, FREE, b""), buckets, tree or branch(4, 5, 6), first, second))


def shown(data: bytes, prefix: bytes = b"") -> list[tuple[bytes, bytes, int]]:
    return [(one.key, one.value, one.revision) for one in entries(open_database(data), prefix=prefix)]


def test_the_newest_revision_of_what_is_not_deleted() -> None:
    assert shown(database()) == [(b"/other", b"x" * 100, 6), (b"/registry/a", b"new", 4)]
    assert shown(database(), b"/registry/") == [(b"/registry/a", b"new", 4)]


def test_a_value_is_not_shown_by_accident() -> None:
    assert "new" not in repr(Entry(key=b"k", value=b"new", revision=1, version=1))


def test_the_head_with_the_later_transaction_counts_and_a_damaged_one_does_not() -> None:
    assert open_database(database()).root == 3
    damaged = bytearray(database())
    damaged[PAGE + 40] ^= 1
    assert open_database(bytes(damaged)).root == 9


def test_a_page_may_run_over() -> None:
    big = leaf(
        6, *[(revision(number), stored(b"/registry/%d" % number, b"v" * 100)) for number in range(4, 50)], overflow=1
    )
    assert len(shown(database(second=big), b"/registry/")) == 48


def test_a_small_bucket_lies_in_its_parent() -> None:
    inner = struct.pack("<QQ", 0, 0) + leaf(0, (revision(1), OLD))[:200]
    data = b"".join((meta(0, 3, 7), meta(1, 3, 8), page(2, FREE, b""), leaf(3, (b"key", inner), flags=1)))
    assert shown(data) == [(b"/registry/a", b"old", 1)]


def test_an_empty_bucket_has_no_keys() -> None:
    assert list(bucket(open_database(database()), b"meta")) == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(bytes(8 * PAGE), id="zeros"),
        pytest.param(database()[: 4 * PAGE], id="cut off"),
        pytest.param(database(tree=branch(4, 4)), id="a branch that leads to itself"),
        pytest.param(database(tree=branch(4, 5, 5)), id="one leaf twice"),
        pytest.param(database(tree=branch(4, 1 << 60)), id="a page beyond the file"),
        pytest.param(database(tree=page(4, BRANCH, b"", count=65535)), id="more branches than fit"),
        pytest.param(database(tree=page(4, FREE, b"")), id="a page of another kind"),
        pytest.param(database(tree=page(7, BRANCH, b"")), id="a page that says another number"),
        pytest.param(database(first=page(5, LEAF, b"", count=65535)), id="more elements than fit"),
        pytest.param(
            database(first=page(5, LEAF, struct.pack("<IIII", 0, 16, 1 << 31, 1), count=1)), id="a key that is too long"
        ),
        pytest.param(database(first=leaf(5, (b"short", OLD))), id="no revision"),
        pytest.param(database(first=leaf(5, (revision(2) + b"x", OLD))), id="another mark"),
        pytest.param(database(first=leaf(5, (revision(2), b"\x0a\xff\x01"))), id="a field that runs over its entry"),
        pytest.param(database(first=leaf(5, (revision(2), b"\xff" * 12))), id="a number without end"),
        pytest.param(database(first=leaf(5, (revision(2), b"\x0b"))), id="a field of a kind that nobody uses"),
        pytest.param(database(first=leaf(5, (revision(2), b"\x08\x01"))), id="a number as key"),
    ],
)
def test_a_file_that_is_damaged_or_lies_is_refused(data: bytes) -> None:
    assert code_of(lambda: shown(data)) == "ETCD_DATABASE_MALFORMED"


def test_a_file_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.write_bytes(database())
    assert len(entries(open_keyspace(path))) == 2
    path.write_bytes(b"")
    assert code_of(lambda: open_keyspace(path)) == "ETCD_DATABASE_MALFORMED"
    assert code_of(lambda: open_keyspace(tmp_path / "none")) == "FILE_UNUSABLE"
