# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write files atomically, with their mode from the first byte on; named locks; checks for tmpfs and swap."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import SystemFault
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_bytes(path: str | Path, *, limit: int = 1 << 20) -> bytes:
    """Return the content of ``path``, at most ``limit`` bytes; raises FILE_UNUSABLE."""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise SystemFault(f"cannot read {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    if len(data) > limit:
        raise SystemFault(f"expected at most {limit} bytes in {path}, found more", reason=Reason.FILE_UNUSABLE)
    return data


def write_atomic(path: str | Path, data: bytes, *, mode: int = 0o600, owner: tuple[int, int] | None = None) -> bool:
    """Write ``data`` to ``path`` by rename and return whether anything changed; raises FILE_UNUSABLE.

    ``mode`` and ``owner`` (uid, gid) are set before the first byte is written; a crash leaves the old file.
    """
    target = Path(path)
    if _is_current(target, data, mode, owner):
        return False
    try:
        _replace(target, data, mode, owner)
    except OSError as error:
        raise SystemFault(f"cannot write {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    return True


def make_directory(path: str | Path, *, mode: int = 0o700) -> None:
    """Make the directory ``path`` and its parents if they are missing; raises FILE_UNUSABLE."""
    try:
        Path(path).mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise SystemFault(f"cannot make the directory {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def place_link(link: Path, name: str) -> None:
    """Make the symbolic link ``link`` to ``name`` atomically, by rename; raises FILE_UNUSABLE."""
    fresh = link.with_name(f".{link.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(name)
        fresh.replace(link)
    except OSError as error:
        raise SystemFault(f"cannot make the link {link}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def remove(path: str | Path) -> bool:
    """Remove the file ``path`` if it exists; return whether it did. Raises FILE_UNUSABLE."""
    try:
        Path(path).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SystemFault(f"cannot remove {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    return True


def _is_current(target: Path, data: bytes, mode: int, owner: tuple[int, int] | None) -> bool:
    try:
        found = target.lstat()
        if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != mode:
            return False
        if owner is not None and (found.st_uid, found.st_gid) != owner:
            return False
        return found.st_size == len(data) and target.read_bytes() == data
    except OSError:
        return False


def _replace(target: Path, data: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            if owner is not None:
                os.fchown(stream.fileno(), *owner)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# One lock for each name, so that work under different names does not wait.


@dataclass(slots=True)
class _Lock:
    """A lock, and the number of threads that hold it or wait for it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class NamedLocks:
    """Locks by name; a lock exists only while a thread holds it or waits for it, so their number is bounded."""

    def __init__(self) -> None:
        """Start without locks."""
        self._guard = threading.Lock()
        self._locks: dict[str, _Lock] = {}

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Wait for the lock of ``name`` and hold it."""
        with self._guard:
            mine = self._locks.setdefault(name, _Lock())
            mine.users += 1
        try:
            with mine.lock:
                yield
        finally:
            with self._guard:
                mine.users -= 1
                if not mine.users:
                    del self._locks[name]


# Directories in memory, the only place where a secret may be stored while a phase needs it.

_MEMORY_TYPES = frozenset({"tmpfs", "ramfs"})


def require_tmpfs(path: str | Path, *, mounts: str | Path = "/proc/self/mounts") -> Path:
    """Return ``path`` resolved if its file system is in memory, else raise NOT_TMPFS.

    ``mounts`` is a table as in fstab(5); the longest mount point that is a parent of ``path`` decides.
    """
    wanted = Path(path).resolve()
    kind = mount_kind(wanted, mounts=mounts)
    if kind not in _MEMORY_TYPES:
        raise SystemFault(f"expected {path} on tmpfs, it is on {kind}", reason=Reason.NOT_TMPFS)
    return wanted


def mount_kind(path: str | Path, *, mounts: str | Path = "/proc/self/mounts") -> str:
    """Return the type of the file system of ``path``, as in fstab(5)."""
    return _filesystem_of(Path(path).resolve(), Path(mounts).read_text(encoding="utf-8"))


def require_no_swap(*, swaps: str | Path = "/proc/swaps") -> None:
    """Raise SWAP_ACTIVE unless the table ``swaps`` (proc(5)) lists no area."""
    areas = [line.split()[0] for line in Path(swaps).read_text(encoding="utf-8").splitlines()[1:]]
    if areas:
        raise SystemFault(f"expected no swap, found {', '.join(areas)}", reason=Reason.SWAP_ACTIVE)


def _filesystem_of(wanted: Path, table: str) -> str:
    best = ("", "unknown")
    for line in table.splitlines():
        point, kind = line.split()[1:3]
        point = point.encode().decode("unicode_escape")
        if wanted.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]
