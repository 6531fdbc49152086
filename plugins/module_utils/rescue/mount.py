# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open a disk read only with its derived key, and mount what is in it: undone in the other order."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import AttestedError
from .disk import OPEN, judge_copy, require_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..keys import DiskKey
    from ..system import Runner
    from .disk import DiskCopy

# the contents are another machine's: nothing of them runs, and no journal is replayed into them
_OPTIONS = "ro,noload,nodev,nosuid,noexec"
_OPEN_SECONDS = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """A disk that is open as ``/dev/mapper/NAME`` and mounted at ``place``."""

    name: str
    place: Path


def mount_disk(runner: Runner, copy: DiskCopy, key: DiskKey, *, place: Path) -> Mounted:
    """Open and mount, both read only; on failure nothing stays open.

    1. The copied header is judged. 2. The key opens it (DISK_KEY_WRONG). 3. The disk is opened by that copy. 4. Its
    ext4 is mounted. Raises COMMAND_FAILED where this machine has no dm-crypt, or no dm-integrity.
    """
    judge_copy(copy)  # 1
    require_key(runner, copy, key)  # 2
    name = mapping_name(copy)
    with _device(runner, copy) as device:
        argv = [*OPEN, "--readonly", "--header", str(copy.path), device, name]
        runner.run(argv, stdin=key.reveal(), timeout_seconds=_OPEN_SECONDS)  # 3
    try:
        runner.run(("mount", "-t", "ext4", "-o", _OPTIONS, f"/dev/mapper/{name}", str(place)))  # 4
    except AttestedError:
        runner.run(("cryptsetup", "close", name), check=False)
        raise
    return Mounted(name=name, place=place)


@contextmanager
def _device(runner: Runner, copy: DiskCopy) -> Iterator[str]:
    """Yield what cryptsetup opens: the source itself, or a loop device over one partition of it.

    A loop device that is let go while it is in use goes by itself with its last user, so nobody needs to remember it.
    """
    if copy.place.number == 0:
        yield str(copy.source)
        return
    window = ("--offset", str(copy.place.start), "--sizelimit", str(copy.place.size))
    done = runner.run(("losetup", "--find", "--show", "--read-only", *window, str(copy.source)))
    device = done.stdout.decode("ascii", "replace").strip()
    try:
        yield device
    finally:
        runner.run(("losetup", "--detach", device), check=False)


def unmount_disk(runner: Runner, *, place: Path, name: str) -> None:
    """Unmount and close; raises COMMAND_FAILED where somebody still uses it."""
    runner.run(("umount", str(place)))
    runner.run(("cryptsetup", "close", name))


def mapping_name(copy: DiskCopy) -> str:
    """Return the name below /dev/mapper: one for each disk, so that two of them can be open."""
    return f"rescue-{copy.header.uuid}"
