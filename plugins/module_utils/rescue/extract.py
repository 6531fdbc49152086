# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy the data for rebuilding a cluster from a mounted disk: its PKI, its etcd, its state, with hashes.

The tree is from another machine, so no link is followed, only plain files are copied, and all else is listed.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import AttestedError, EtcdError, SystemFault
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TypeAlias

    Data: TypeAlias = "bytes | memoryview"


# Read keys and values of the newest revision from etcd's database file.
#
# The bucket ``key`` has every revision that was not compacted. Its keys are 8 bytes of revision, ``_``, 8 bytes of
# sub-revision, and a ``t`` if that revision deleted the key; its values are ``mvccpb.KeyValue``. Data that etcd wrote
# only to its log (the folder ``wal``) since the last commit is not in the file; etcd replays the log itself.

# Read etcd's database file (bbolt, format 2) without etcd: pages in, keys and values of one bucket out. Pure.
#
# A page begins with its number, kind, count of elements, and number of overflow pages. The first two pages have the
# root and a checksum; the valid one with the higher transaction counts. Every offset is checked against the file's end,
# and each page is visited once, so that a tree with a loop ends.

_PAGE = struct.Struct("<QHHI")
_META = struct.Struct("<IIIIQQQQQQ")
_ELEMENT = struct.Struct("<IIII")
_BRANCH = struct.Struct("<IIQ")
_BUCKET = struct.Struct("<QQ")
_MAGIC, _VERSION = 0xED0CDAED, 2
_IS_BRANCH, _IS_LEAF, _IS_META = 1, 2, 4
_HOLDS_BUCKET = 1
_PAGE_SIZES = tuple(1 << power for power in range(9, 17))
_MAX_DEPTH = 64
_FNV_OFFSET, _FNV_PRIME, _FNV_MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """An opened file: its bytes, the size of a page, the root page of the buckets, and the last transaction."""

    data: Data
    page_bytes: int
    root: int
    transaction: int


def open_database(data: Data) -> Database:
    """Return the database in ``data``; raises ETCD_DATABASE_MALFORMED if neither of its two meta pages is valid."""
    heads = [head for size in _PAGE_SIZES for at in (0, size) if (head := _head(data, at, size)) is not None]
    if not heads:
        raise malformed("a database of etcd (bbolt), both meta pages are invalid")
    return max(heads, key=lambda head: head.transaction)


def bucket(database: Database, name: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of the bucket ``name``, in order; raises ETCD_DATABASE_MALFORMED."""
    for key, value, is_bucket in _walk_pages(database, database.root, set()):
        if key == name and is_bucket:
            yield from ((inner, data) for inner, data, nested in _entries(database, value) if not nested)
            return
    raise malformed(f"a bucket {name.decode('ascii', 'replace')!r}, there is none")


def _entries(database: Database, value: bytes) -> Iterator[tuple[bytes, bytes, bool]]:
    """Yield the entries of a bucket; its value has the number of its root page, or the page itself if it is small."""
    if len(value) < _BUCKET.size:
        raise malformed(f"a bucket of {_BUCKET.size} bytes, got {len(value)}")
    root, _sequence = _BUCKET.unpack_from(value)
    if root:
        yield from _walk_pages(database, root, set())
    elif len(value) >= _BUCKET.size + _PAGE.size:
        yield from _leaf(value[_BUCKET.size :])


def _walk_pages(database: Database, number: int, seen: set[int], depth: int = 0) -> Iterator[tuple[bytes, bytes, bool]]:
    if depth > _MAX_DEPTH or number in seen:
        raise malformed(f"a tree of at most {_MAX_DEPTH} levels with each page once")
    seen.add(number)
    page = _page(database, number)
    _number, kind, count, _overflow = _PAGE.unpack_from(page)
    if kind & _IS_LEAF:
        yield from _leaf(page)
    elif kind & _IS_BRANCH:
        for index in range(count):
            _at, _size, child = _unpacked(_BRANCH, page, _PAGE.size + index * _BRANCH.size)
            yield from _walk_pages(database, child, seen, depth + 1)
    else:
        raise malformed(f"a branch or a leaf as page {number}, got kind {kind}")


def _leaf(page: Data) -> Iterator[tuple[bytes, bytes, bool]]:
    _number, kind, count, _overflow = _PAGE.unpack_from(page)
    if not kind & _IS_LEAF:
        raise malformed(f"a leaf, got kind {kind}")
    for index in range(count):
        at = _PAGE.size + index * _ELEMENT.size
        flags, offset, key_bytes, value_bytes = _unpacked(_ELEMENT, page, at)
        begin = at + offset
        end = begin + key_bytes + value_bytes
        if end > len(page):
            raise malformed(f"an element within its page, it ends {end - len(page)} bytes after it")
        key = bytes(page[begin : begin + key_bytes])
        yield key, bytes(page[begin + key_bytes : end]), bool(flags & _HOLDS_BUCKET)


def _page(database: Database, number: int) -> memoryview:
    """Return a page with its overflow pages."""
    view, size = memoryview(database.data), database.page_bytes
    at = number * size
    if at + size > len(view):
        raise malformed(f"page {number} within {len(view)} bytes")
    found, _kind, _count, overflow = _PAGE.unpack_from(view, at)
    end = at + (overflow + 1) * size
    if found != number or end > len(view):
        raise malformed(f"page {number} of {overflow + 1}, got number {found} or less of it")
    return view[at:end]


def _head(data: Data, at: int, page_bytes: int) -> Database | None:
    begin = at + _PAGE.size
    if len(data) < begin + _META.size:
        return None
    _number, kind, _count, _overflow = _PAGE.unpack_from(data, at)
    magic, version, size, _flags, root, _sequence, _free, _high, transaction, checksum = _META.unpack_from(data, begin)
    if (magic, version, size) != (_MAGIC, _VERSION, page_bytes) or not kind & _IS_META:
        return None
    if _fnv(bytes(data[begin : begin + _META.size - 8])) != checksum:
        return None
    return Database(data=data, page_bytes=page_bytes, root=root, transaction=transaction)


def _fnv(data: bytes) -> int:
    """Return the 64-bit FNV-1a of ``data``."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _FNV_MASK
    return value


def _unpacked(shape: struct.Struct, page: Data, at: int) -> tuple[int, ...]:
    if at + shape.size > len(page):
        raise malformed("elements within their page, it ends before them")
    return shape.unpack_from(page, at)


def malformed(expected: str) -> EtcdError:
    """Return the error ETCD_DATABASE_MALFORMED."""
    return EtcdError(f"expected {expected}", reason=Reason.ETCD_DATABASE_MALFORMED)


_REVISION_BYTES = 17
_TOMBSTONE = b"t"
_FIELDS = {1: "key", 2: "create_revision", 3: "mod_revision", 4: "version", 5: "value", 6: "lease"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_SHIFT, _GOES_ON = 63, 0x80


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key with its last value, the revision of the last write, and its version (number of writes)."""

    key: bytes
    value: bytes = field(repr=False)
    revision: int
    version: int


def open_keyspace(path: Path) -> Database:
    """Return the database file ``path`` (``member/snap/db``), memory-mapped.

    The mapping exists as long as the returned object. Raises FILE_UNUSABLE, ETCD_DATABASE_MALFORMED.
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
    """Return the entries with ``prefix`` that are not deleted, sorted by key; raises ETCD_DATABASE_MALFORMED."""
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


ETCD = "var/lib/etcd"
PKI = "kubernetes/pki"
PLACES = ("kubernetes", ETCD, "constellation")
"""Folders on a state disk of Constellation: /etc/kubernetes, etcd's data, and the node's record with the salt."""

MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
_CHUNK = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One file: its path on the disk, its size, and the SHA-256 of the copied bytes."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """The copied files, the entries that are no plain files (path and kind), and the folders that the disk lacks."""

    files: tuple[Copied, ...]
    left_out: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]


def extract_data(mounted: Path, out: Path) -> Extract:
    """Copy `PLACES` of the disk at ``mounted`` into the new folder ``out``, and write `MANIFEST` and `SUMS` there.

    Only the owner can read the copies. Raises FILE_UNUSABLE if ``out`` is not empty or a file cannot be read,
    RESCUE_NO_DISK if the disk has none of the folders, RESCUE_SOURCE_CHANGED if a file changes during its copy.
    """
    missing = tuple(place for place in PLACES if not _has(mounted, place))
    if len(missing) == len(PLACES):
        raise SystemFault(
            f"expected {', '.join(PLACES)} in {mounted}, it has none of them", reason=Reason.RESCUE_NO_DISK
        )
    try:
        _make_empty(out)
        done = _copied(mounted, out, missing)
        _write(out / SUMS, "".join(f"{one.sha256}  {one.path}\n" for one in done.files).encode())
        _write(out / MANIFEST, manifest(done))
    except OSError as error:
        name = error.filename or mounted
        raise SystemFault(f"cannot copy {name}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    return done


def manifest(done: Extract) -> bytes:
    """Return the manifest as JSON."""
    document = {
        "version": 1,
        "files": [{"path": one.path, "size": one.size, "sha256": one.sha256} for one in done.files],
        "left_out": [{"path": path, "kind": kind} for path, kind in done.left_out],
        "missing": list(done.missing),
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def _has(mounted: Path, place: str) -> bool:
    """Return whether ``place`` is a folder of the disk and no part of its path is a link."""
    path = mounted
    for part in place.split("/"):
        path /= part
        if not os.path.lexists(path) or not stat.S_ISDIR(path.lstat().st_mode):
            return False
    return True


def _make_empty(out: Path) -> None:
    out.mkdir(mode=0o700, exist_ok=True)
    if any(out.iterdir()):
        raise SystemFault(f"expected an empty folder, got {out}", reason=Reason.FILE_UNUSABLE)
    out.chmod(0o700)


def _copied(mounted: Path, out: Path, missing: tuple[str, ...]) -> Extract:
    files: list[Copied] = []
    left_out: list[tuple[str, str]] = []
    for place in PLACES:
        if place in missing:
            continue
        _make_way(out, place)
        for path, status in _walk_files(mounted / place):
            name = str(path.relative_to(mounted))
            target = out / name
            if stat.S_ISDIR(status.st_mode):
                target.mkdir(mode=0o700)
            elif stat.S_ISREG(status.st_mode) and name.isprintable():
                files.append(_copy(path, target, name))
            else:
                left_out.append((ascii(name)[1:-1], _kind(path, status)))
    return Extract(files=tuple(files), left_out=tuple(left_out), missing=missing)


def _make_way(out: Path, place: str) -> None:
    """Make the folder ``place`` and its parents, all only for the owner; `mkdir(parents=True)` ignores the mode."""
    for part in place.split("/"):
        out /= part
        out.mkdir(mode=0o700, exist_ok=True)


def _walk_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all entries below ``folder``, folders before their content, links as links."""
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder and not path.name.isprintable():
            raise SystemFault(f"expected a printable name in {folder}, got {path.name!r}", reason=Reason.FILE_UNUSABLE)
        yield path, status
        if is_folder:
            yield from _walk_files(path)


def _copy(source: Path, target: Path, name: str) -> Copied:
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(source, _READ)
    with open(descriptor, "rb") as reader, open(os.open(target, _WRITE, 0o600), "wb") as writer:  # noqa: PTH123
        before = os.fstat(descriptor)
        while part := reader.read(_CHUNK):
            digest.update(part)
            writer.write(part)
            size += len(part)
        after = os.fstat(descriptor)
        writer.flush()
        os.fsync(writer.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != before.st_size:
        raise AttestedError(
            f"expected {source} to stay as it is, it changed while it was copied", reason=Reason.RESCUE_SOURCE_CHANGED
        )
    return Copied(path=name, size=size, sha256=digest.hexdigest())


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, _WRITE, 0o600), "wb") as writer:  # noqa: PTH123 - a mode from the first byte on
        writer.write(data)


def _kind(path: Path, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return f"link to {ascii(str(path.readlink()))[1:-1]}"
    return "a name that cannot be printed" if stat.S_ISREG(status.st_mode) else "no plain file"
