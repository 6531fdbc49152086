# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory-only directories: where a secret may lie while a phase needs it."""

from __future__ import annotations

from pathlib import Path

from ..errors import SystemFault
from ..reasons import Reason

_MEMORY_TYPES = frozenset({"tmpfs", "ramfs"})


def require_tmpfs(path: str | Path, *, mounts: str | Path = "/proc/self/mounts") -> Path:
    """Return ``path`` resolved if its file system lives in memory, else raise NOT_TMPFS.

    ``mounts`` is a table as in fstab(5); the longest mount point that is a parent of ``path`` decides.
    """
    wanted = Path(path).resolve()
    kind = mount_kind(wanted, mounts=mounts)
    if kind not in _MEMORY_TYPES:
        raise SystemFault(f"expected {path} on tmpfs, it is on {kind}", reason=Reason.NOT_TMPFS)
    return wanted


def mount_kind(path: str | Path, *, mounts: str | Path = "/proc/self/mounts") -> str:
    """Return the type of the file system that ``path`` lies on, as fstab(5) names it."""
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
