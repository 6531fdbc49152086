# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a command of a timer succeeded last, and why it has failed since; on tmpfs, until the next boot.

No decision depends on it: `attested-agent figures` exports it, alerts use its age (docs/adr/0079), and the status of
the node calls for a person if the cluster refused the node's evidence.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.documents import load_json
from ..core.files import read_bytes, write_atomic
from ..errors import AttestedError, SystemFault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.host import Clock

DIRECTORY = Path("/run/attested")
BACKUP, DISK_HEALTH, REATTEST, RENEW = "backup", "disk-health", "reattest", "renew"
RENEW_CONTROL_PLANE = "renew-control-plane"
COMMANDS = (BACKUP, DISK_HEALTH, REATTEST, RENEW, RENEW_CONTROL_PLANE)
"""The commands of `attested-agent` whose last success is recorded."""

_VERSION = 1
_LIMIT = 1 << 14
_MAX_MESSAGE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The last success in this boot, and the failure since then with its error; None if there was none."""

    good_at: datetime | None = None
    failed_at: datetime | None = None
    reason: str = ""
    message: str = ""


class RunRecord:
    """The record of one command in a file."""

    def __init__(self, command: str, directory: Path = DIRECTORY, *, clock: Clock) -> None:
        """Store the path in ``directory``, which `prepare` makes."""
        self._path = directory / file_name(command)
        self._clock = clock

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Record how the block ends and raise its error again.

        If writing fails, the record gets old, which alerts.
        """
        try:
            yield
        except AttestedError as error:
            message = error.message[:_MAX_MESSAGE]
            self._write(replace(self.load(), failed_at=self._clock.now(), reason=error.code, message=message))
            raise
        self._write(Run(good_at=self._clock.now()))

    def load(self) -> Run:
        """Return the record of this boot; a missing or unknown file counts as no run."""
        try:
            found = load_json(read_bytes(self._path, limit=_LIMIT))
            if found["version"] != _VERSION:
                return Run()
            good_at, failed_at = _moment(found["good_at"]), _moment(found["failed_at"])
            reason, message = str(found["reason"]), str(found.get("message", ""))
            return Run(good_at=good_at, failed_at=failed_at, reason=reason, message=message)
        except (SystemFault, ValueError, KeyError, TypeError):
            return Run()

    def _write(self, run: Run) -> None:
        body = {
            "version": _VERSION,
            "good_at": _stamp(run.good_at),
            "failed_at": _stamp(run.failed_at),
            "reason": run.reason,
            "message": run.message,
        }
        with suppress(SystemFault):
            write_atomic(self._path, json.dumps(body).encode() + b"\n")


def file_name(command: str) -> str:
    """Return the file name of ``command``; a reset removes the file."""
    return f"last-{command}.json"


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
