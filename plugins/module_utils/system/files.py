# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files: whole or not at all, with their mode from the first byte on."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from ..errors import SystemFault
from ..reasons import Reason


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
    """Write ``data`` to ``path`` by rename and return whether anything changed.

    ``mode`` and ``owner`` (uid, gid) hold before the first byte is written; a crash leaves the old file.
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
    """Make the directory ``path`` and those above it, where they are absent; raises FILE_UNUSABLE."""
    try:
        Path(path).mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise SystemFault(f"cannot make the directory {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def place_link(link: Path, name: str) -> None:
    """Make ``link`` lead to ``name``, by rename: whoever looks finds the old one or the new; raises FILE_UNUSABLE."""
    fresh = link.with_name(f".{link.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(name)
        fresh.replace(link)
    except OSError as error:
        raise SystemFault(f"cannot make the link {link}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def remove(path: str | Path) -> bool:
    """Remove the file ``path`` if it is there; return whether it was."""
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
