# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verified files of a site, written: into a directory that nobody else can enter, and only then under its name."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import SystemFault
from ..reasons import Reason
from .tree import FileKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tree import SiteFile

_MODES = {FileKind.PLAIN: 0o600, FileKind.EXECUTABLE: 0o700}


def export(files: Sequence[SiteFile], target: Path) -> None:
    """Make ``target`` hold exactly ``files``; raises FILE_UNUSABLE.

    Links come last, so nothing is ever written through one; modes are two of ours, so none is set-user-id.
    """
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}-*"):
            shutil.rmtree(left)
        fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        for file in sorted(files, key=lambda one: one.kind is FileKind.LINK):
            _write(file, fresh / file.path)
        discard(target)
        fresh.rename(target)
    except OSError as error:
        raise SystemFault(f"cannot write {target}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def discard(target: Path) -> None:
    """Remove an earlier working copy, if there is one."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)


def _write(file: SiteFile, place: Path) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file.kind is FileKind.LINK:
        place.symlink_to(file.content.decode())
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(place, flags, _MODES[file.kind]), "wb") as stream:
        stream.write(file.content)
