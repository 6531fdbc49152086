# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of the files before a renewal, root's alone, until the new ones have proven themselves.

    nothing kept ──keep──▶ kept ──drop──▶ nothing kept
                             └──put back──▶ kept ──drop──▶

The copies of a component are there wholly or not at all (one rename). Copies that a run finds are of one that was
killed: then the files are not known to be good, and those before are put back.
"""

from __future__ import annotations

import shutil
import stat
from typing import TYPE_CHECKING

from ..errors import SystemFault
from ..reasons import Reason
from ..system import read_bytes, write_atomic
from .table import ORDER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path, PurePosixPath

    from ..kubeadm import KubernetesPaths

_NAME = "attested-renewal"
_LIMIT = 1 << 20


class KeptFiles:
    """The directory of the copies, beside what they are copies of: a reset of the machine takes both."""

    def __init__(self, paths: KubernetesPaths) -> None:
        """Keep below the directory of kubeadm."""
        self._root = paths.root
        self._directory = paths.kubernetes / _NAME

    def components(self) -> tuple[str, ...]:
        """Return the components whose renewal was cut off."""
        return tuple(name for name in ORDER if (self._directory / name).is_dir())

    def source(self, component: str, path: PurePosixPath) -> Path:
        """Return where the good content of ``path`` lies: its copy, if there is one."""
        copy = self._directory / component / path
        return copy if copy.exists() else self._root / path

    def keep(self, component: str, files: Iterable[PurePosixPath]) -> None:
        """Copy ``files`` with their modes; raises FILE_UNUSABLE, and then nothing is kept."""
        fresh = self._directory / f".{component}"
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(mode=0o700, parents=True)
            self._directory.chmod(0o700)
            for path in files:
                copy = fresh / path
                copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _copy(self._root / path, copy)
            fresh.rename(self._directory / component)
        except OSError as error:
            raise _unusable(self._directory, error) from error

    def put_back(self, component: str) -> None:
        """Make the files of a component what they were; raises FILE_UNUSABLE, and then the copies stay."""
        kept = self._directory / component
        for copy in sorted(path for path in kept.rglob("*") if path.is_file()):
            _copy(copy, self._root / copy.relative_to(kept))

    def drop(self, component: str) -> None:
        """Forget the copies of a component; raises FILE_UNUSABLE."""
        gone = self._directory / f".{component}"
        try:
            shutil.rmtree(gone, ignore_errors=True)
            (self._directory / component).rename(gone)  # what is half removed is not taken for copies
            shutil.rmtree(gone)
            if not any(self._directory.iterdir()):
                self._directory.rmdir()
        except OSError as error:
            raise _unusable(self._directory, error) from error


def _copy(source: Path, target: Path) -> None:
    content = read_bytes(source, limit=_LIMIT)
    write_atomic(target, content, mode=stat.S_IMODE(source.stat().st_mode))


def _unusable(directory: Path, error: OSError) -> SystemFault:
    return SystemFault(f"cannot keep copies in {directory}: {error.strerror}", reason=Reason.FILE_UNUSABLE)
