# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the lock lives, and who holds it now."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NodeLockError, SystemFault
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..system import Clock

_WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLockPaths:
    """All below directories in memory, so a reset of the machine clears them together with the TPM.

    ``firmware_log`` is the kernel's binary_bios_measurements, ``userspace_log`` systemd's.
    """

    directory: Path = Path("/run/attested")
    firmware_log: Path = Path("/sys/kernel/security/tpm0/binary_bios_measurements")
    userspace_log: Path = Path("/run/log/systemd/tpm2-measure.log")

    @property
    def lock_file(self) -> Path:
        """The file whose flock(2) serialises everybody on this machine."""
        return self.directory / "nodelock.lock"

    @property
    def log(self) -> Path:
        """What this collection extends, written before it does; sent to the verifier."""
        return self.directory / "nodelock.log"

    @property
    def marker(self) -> Path:
        """Exists while the machine is locked; the kubelet unit's condition."""
        return self.directory / "locked"


@contextmanager
def exclusive(paths: NodeLockPaths, *, clock: Clock) -> Iterator[None]:
    """Hold the machine-wide file lock; raises NODELOCK_BUSY.

    Each caller opens the file itself, so threads exclude each other too; a killed process lets go.
    """
    descriptor = _open(paths)
    try:
        _wait_for(descriptor, clock)
        yield
    finally:
        os.close(descriptor)


def _open(paths: NodeLockPaths) -> int:
    try:
        # Others may pass through to the sockets below it; what lies in it is for root.
        paths.directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        return os.open(paths.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise SystemFault(
            f"cannot open {paths.lock_file}: {error.strerror}", reason=Reason.FILE_UNUSABLE, hint="Run as root."
        ) from error


def _wait_for(descriptor: int, clock: Clock) -> None:
    deadline = clock.monotonic() + _WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if clock.monotonic() > deadline:
                raise NodeLockError(
                    f"expected the lock file within {_WAIT_SECONDS:g} s, another process holds it",
                    reason=Reason.NODELOCK_BUSY,
                ) from error
            clock.sleep(_POLL_SECONDS)
        else:
            return
