# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process does before it touches a key: nothing of it may reach a disk, by swap or by a core."""

from __future__ import annotations

import ctypes
import os
import resource
import stat
from typing import TYPE_CHECKING, Protocol

from ..errors import SystemFault
from ..keys.secret import DiskKey
from ..reasons import Reason
from ..system import require_no_swap, require_tmpfs
from .commands import KEY_BYTES

if TYPE_CHECKING:
    from pathlib import Path

_MCL_CURRENT_AND_FUTURE = 3
_PR_SET_DUMPABLE = 4


class Libc(Protocol):
    """The two calls of libc; both return 0, or another number and errno."""

    def mlockall(self, flags: int) -> int:
        """Lock this process' memory (mlockall(2))."""

    def prctl(self, option: int, *values: int) -> int:
        """Change this process (prctl(2))."""


def harden(*, libc: Libc | None = None, swaps: str = "/proc/swaps") -> None:
    """Keep this process out of swap and cores, for good; what it starts inherits the limit.

    1. No swap is on. SWAP_ACTIVE
    2. Its memory is locked. STATE_DISK_UNGUARDED
    3. Its core limit is 0, and it cannot be dumped or traced by other users. STATE_DISK_UNGUARDED
    """
    require_no_swap(swaps=swaps)  # 1
    libc = libc or ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT_AND_FUTURE):  # 2
        raise _unguarded(f"lock its memory: {os.strerror(ctypes.get_errno())}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # 3
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise _unguarded(f"forbid dumps: {os.strerror(ctypes.get_errno())}")


def read_key(path: Path, *, mounts: Path) -> DiskKey:
    """Return the key in a file on tmpfs that root alone can read; raises NOT_TMPFS, STATE_DISK_KEY."""
    require_tmpfs(path, mounts=mounts)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            found = os.fstat(descriptor)
            value = stream.read(KEY_BYTES + 1)
    except OSError as error:
        raise _bad_key(path, str(error.strerror)) from error
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise _bad_key(path, "it is not its owner's alone")
    if value is None or len(value) != KEY_BYTES:
        raise _bad_key(path, f"it does not hold {KEY_BYTES} bytes")
    return DiskKey(value)


def _bad_key(path: Path, problem: str) -> SystemFault:
    return SystemFault(f"expected the key of a disk in {path}: {problem}", reason=Reason.STATE_DISK_KEY)


def _unguarded(what: str) -> SystemFault:
    return SystemFault(f"expected the process that holds keys to {what}", reason=Reason.STATE_DISK_UNGUARDED)
