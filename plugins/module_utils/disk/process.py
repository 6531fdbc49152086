# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both sides of the short-lived process that holds keys.

The process reads a job on standard input and prints the outcome. The calling process keeps running, so a job holds no
key unless it is sealed, and an outcome never holds a key.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import stat
import sys
from typing import TYPE_CHECKING, Any, Protocol

from .. import errors
from ..core.files import require_no_swap, require_tmpfs
from ..errors import AttestedError, SystemFault
from ..keyservice.master import DiskKey
from ..reasons import Reason
from .gateway import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..core.command import Runner


# A process hardens itself before it reads a key: its memory must not reach a disk through swap or a core dump.

_MCL_CURRENT_AND_FUTURE = 3
_PR_SET_DUMPABLE = 4


class Libc(Protocol):
    """Two functions of libc; both return 0, or another value and set errno."""

    def mlockall(self, flags: int) -> int:
        """Lock the memory of this process (mlockall(2))."""

    def prctl(self, option: int, *values: int) -> int:
        """Change an attribute of this process (prctl(2))."""


def harden(*, libc: Libc | None = None, swaps: str = "/proc/swaps") -> None:
    """Keep the memory of this process out of swap and core dumps; child processes inherit the core limit.

    1. No swap is active. SWAP_ACTIVE
    2. The memory is locked. STATE_DISK_UNGUARDED
    3. The core limit is 0, and other users cannot dump or trace the process. STATE_DISK_UNGUARDED
    """
    require_no_swap(swaps=swaps)  # 1
    libc = libc or ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT_AND_FUTURE):  # 2
        raise _unguarded(f"lock its memory: {os.strerror(ctypes.get_errno())}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # 3
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise _unguarded(f"forbid dumps: {os.strerror(ctypes.get_errno())}")


def read_key(path: Path, *, mounts: Path) -> DiskKey:
    """Return the key from a file on tmpfs that only this user can access.

    Raises NOT_TMPFS, STATE_DISK_KEY.
    """
    require_tmpfs(path, mounts=mounts)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            found = os.fstat(descriptor)
            value = stream.read(KEY_BYTES + 1)
    except OSError as error:
        raise _bad_key(path, str(error.strerror)) from error
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise _bad_key(path, "it is not a regular file that only this user can access")
    if value is None or len(value) != KEY_BYTES:
        raise _bad_key(path, f"it does not hold {KEY_BYTES} bytes")
    return DiskKey(value)


def _bad_key(path: Path, problem: str) -> SystemFault:
    return SystemFault(f"expected the key of a disk in {path}: {problem}", reason=Reason.STATE_DISK_KEY)


def _unguarded(what: str) -> SystemFault:
    return SystemFault(f"expected the process that holds keys to {what}", reason=Reason.STATE_DISK_UNGUARDED)


MAX_JOB_BYTES = 1 << 17


def call_key_process(module: str, job: Mapping[str, Any], *, runner: Runner, timeout_seconds: float) -> dict[str, Any]:
    """Run ``job`` in a process of ``module`` and return the outcome.

    Raises the reported error, COMMAND_FAILED.
    """
    argv = [sys.executable, "-P", "-m", module]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = runner.run(argv, stdin=json.dumps(job).encode(), env=env, timeout_seconds=timeout_seconds)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise SystemFault("expected an answer of the process that holds keys", reason=Reason.COMMAND_FAILED) from error
    if "failed" in answer:
        kind: type[AttestedError] = getattr(errors, answer["kind"], AttestedError)
        raise kind(answer["failed"], reason=Reason[answer["reason"]], hint=answer["hint"])
    return answer


def serve_key_job(perform: Callable[[Mapping[str, Any]], dict[str, Any]]) -> int:
    """Harden this process, run ``perform`` on the job from standard input, and print the result."""
    job = json.loads(sys.stdin.buffer.read(MAX_JOB_BYTES))
    try:
        harden()
        answer = perform(job)
    except AttestedError as error:
        answer = {"failed": error.message, "reason": error.code, "hint": error.hint, "kind": type(error).__name__}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0
