# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One client at a time for each TPM: a lock file, because neither swtpm nor /dev/tpm0 keeps clients apart."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TpmError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..system import Clock

DEFAULT_DIRECTORY = "/run/attested"
_PAUSE_SECONDS = 0.01


def file_of(tcti: str, directory: str | Path, ending: str) -> Path:
    """Return the path of a file that belongs to the TPM ``tcti`` and to no other."""
    return Path(directory) / f"tpm-{hashlib.sha256(tcti.encode()).hexdigest()[:16]}.{ending}"


@contextlib.contextmanager
def tpm_lock(tcti: str, directory: str | Path, *, timeout_seconds: float, clock: Clock) -> Iterator[None]:
    """Hold the lock of the TPM ``tcti``, also against other threads; raises TPM_BUSY, or TPM_UNREACHABLE without it.

    The lock is flock(2) on a file in ``directory`` (made with mode 0700 if it is absent), so a killed client frees it.
    """
    path = file_of(tcti, directory, "lock")
    descriptor = _open(path)
    try:
        _acquire(descriptor, path, timeout_seconds, clock)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise TpmError(
            f"cannot open the lock file {path}: {error.strerror}",
            reason=Reason.TPM_UNREACHABLE,
            hint="Run as root: the TPM is used by one client at a time, under this lock.",
        ) from error


def _acquire(descriptor: int, path: Path, timeout_seconds: float, clock: Clock) -> None:
    deadline = clock.monotonic() + timeout_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if clock.monotonic() >= deadline:
                raise TpmError(
                    f"expected the TPM's lock {path} to be free within {timeout_seconds:g} s, another client holds it",
                    reason=Reason.TPM_BUSY,
                ) from error
            clock.sleep(_PAUSE_SECONDS)
        else:
            return
