# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in etcd, from its database file: the keys of the newest revision, and the value of one. Pure.

The bucket ``key`` holds every revision that was not compacted, under 8 bytes of revision, ``_`` and 8 bytes of
sub-revision, and a ``t`` where that revision deleted the key; the value is an ``mvccpb.KeyValue``. What etcd had only
written to its log (the folder ``wal``) since its last commit is not in the file: etcd itself replays that.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import SystemFault
from ..reasons import Reason
from .bolt import bucket, malformed, open_database

if TYPE_CHECKING:
    from pathlib import Path

    from .bolt import Database

_REVISION_BYTES = 17
_TOMBSTONE = b"t"
_FIELDS = {1: "key", 2: "create_revision", 3: "mod_revision", 4: "version", 5: "value", 6: "lease"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_SHIFT, _GOES_ON = 63, 0x80


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key as it stood last: its value, when it was written, and how often since it was made."""

    key: bytes
    value: bytes = field(repr=False)
    revision: int
    version: int


def open_keyspace(path: Path) -> Database:
    """Return the database file ``path`` (``member/snap/db``), mapped and not read into memory.

    The mapping lives as long as what is returned. Raises FILE_UNUSABLE, ETCD_DATABASE_MALFORMED.
    """
    try:
        with path.open("rb") as stream:
            if stream.seek(0, 2) == 0:
                raise malformed("a database of etcd, the file is empty")
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise SystemFault(f"cannot read {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    return open_database(memoryview(data))


def entries(database: Database, *, prefix: bytes = b"") -> list[Entry]:
    """Return the keys that begin with ``prefix`` and are not deleted, by name; raises ETCD_DATABASE_MALFORMED."""
    newest: dict[bytes, Entry | None] = {}
    for revision, data in bucket(database, b"key"):
        main = _revision(revision)
        found = _entry(data, main)
        if found.key.startswith(prefix):
            newest[found.key] = None if revision[_REVISION_BYTES:] == _TOMBSTONE else found
    return [entry for _key, entry in sorted(newest.items()) if entry is not None]


def _revision(key: bytes) -> int:
    rest = key[_REVISION_BYTES:]
    if len(key) < _REVISION_BYTES or key[8:9] != b"_" or rest not in {b"", _TOMBSTONE}:
        raise malformed(f"a revision, got {key[:40].hex()}")
    return int.from_bytes(key[:8], "big")


def _entry(data: bytes, revision: int) -> Entry:
    found: dict[str, int | bytes] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _value(data, at, tag & 7)
        name = _FIELDS.get(tag >> 3)
        if name is not None:
            found[name] = value
    key, value, version = found.get("key", b""), found.get("value", b""), found.get("version", 0)
    if not isinstance(key, bytes) or not isinstance(value, bytes) or not isinstance(version, int):
        raise malformed("bytes as key and value, and a number as version")
    return Entry(key=key, value=value, revision=revision, version=version)


def _value(data: bytes, at: int, kind: int) -> tuple[int | bytes, int]:
    if kind == _VARINT:
        return _varint(data, at)
    if kind == _BYTES:
        size, at = _varint(data, at)
    elif kind in {_FIXED64, _FIXED32}:
        size = 8 if kind == _FIXED64 else 4
    else:
        raise malformed(f"a field of a known kind, got {kind}")
    if at + size > len(data):
        raise malformed("a field within its entry")
    return data[at : at + size], at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift <= _MAX_SHIFT:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < _GOES_ON:
            return value, at
    raise malformed("a number within its entry")
