# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy the data for rebuilding a cluster from a mounted disk: its PKI, its etcd, its state, with hashes.

The tree is from another machine, so no link is followed, only plain files are copied, and all else is listed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import AttestedError, SystemFault
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
        for path, status in _walk(mounted / place):
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


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all entries below ``folder``, folders before their content, links as links."""
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder and not path.name.isprintable():
            raise SystemFault(f"expected a printable name in {folder}, got {path.name!r}", reason=Reason.FILE_UNUSABLE)
        yield path, status
        if is_folder:
            yield from _walk(path)


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
