# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why the last renewal of a certificate failed, and when the next starts; on tmpfs, until a renewal succeeds."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.files import make_directory, read_bytes, remove, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.host import Clock
    from ..errors import AttestedError


DIRECTORY = Path("/run/attested/renewal")
"""Belongs to root; holds the record, and during a renewal the new key."""

CONTROL_PLANE_DIRECTORY = Path("/run/attested/control-plane-renewal")
"""The same for the certificates of a control plane itself; during a renewal admin.conf's credential as files."""

_NAME = "failed.json"
_VERSION = 1
_LIMIT = 1 << 14
_MAX_MESSAGE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRenewal:
    """A failed renewal: when, why, when the next starts; ``passes``: the cause may pass by itself."""

    at: datetime
    reason: str
    message: str
    next_try: datetime
    passes: bool


class RenewalRecord:
    """The file of the last renewal, if it failed; `attested-renew` writes it, the node's status reads it."""

    def __init__(self, directory: Path = DIRECTORY, *, clock: Clock) -> None:
        """Store directory and clock."""
        self._path = directory / _NAME
        self._clock = clock

    def clear(self) -> None:
        """Remove the record after a successful renewal; raises FILE_UNUSABLE."""
        remove(self._path)

    def failed(self, error: AttestedError, *, next_seconds: float, passes: bool) -> None:
        """Record why the renewal failed, and after how many seconds the next starts; raises FILE_UNUSABLE."""
        now = self._clock.now()
        body = {
            "version": _VERSION,
            "at": now.isoformat(timespec="seconds"),
            "reason": error.code,
            "message": error.message[:_MAX_MESSAGE],
            "next_try": (now + timedelta(seconds=next_seconds)).isoformat(timespec="seconds"),
            "passes": passes,
        }
        make_directory(self._path.parent, mode=0o700)
        write_atomic(self._path, json.dumps(body, indent=2).encode() + b"\n")

    def load(self) -> FailedRenewal | None:
        """Return the failure; None if there was none in this boot, or the file has an unknown format."""
        if not self._path.exists():
            return None
        try:
            found = json.loads(read_bytes(self._path, limit=_LIMIT))
            if found["version"] != _VERSION:
                return None
            return FailedRenewal(
                at=datetime.fromisoformat(found["at"]),
                reason=str(found["reason"]),
                message=str(found["message"]),
                next_try=datetime.fromisoformat(found["next_try"]),
                passes=found["passes"] is True,
            )
        except (ValueError, KeyError, TypeError):
            return None


# One run at a time on this machine.


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold an exclusive lock during the block; the kernel frees the lock of a killed process."""
    make_directory(directory, mode=0o700)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
