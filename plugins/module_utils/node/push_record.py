# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of the last evidence push of this node, kept on tmpfs until the next boot.

A revoked machine that still runs does not notice it: certificate, lock and kubelet are unchanged. It only notices that
its cluster refuses its evidence. No decision depends on this record; the status calls for a person (`status.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.files import read_bytes, write_atomic
from ..reasons import Reason

if TYPE_CHECKING:
    from ..core.host import Clock
    from ..errors import AttestedError

PATH = Path("/run/attested/pushed.json")
_VERSION = 1
_LIMIT = 1 << 14
_MAX_MESSAGE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """The last push: when it ended, and why it failed (both texts are empty after a success)."""

    at: datetime
    reason: str = ""
    message: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether the cluster refused the evidence, as opposed to being unreachable."""
        return self.reason == Reason.EVIDENCE_REFUSED.name


class PushRecord:
    """The file of the last push; `attested-reattest` writes it, the node's status reads it."""

    def __init__(self, path: Path = PATH, *, clock: Clock) -> None:
        """Store path and clock."""
        self._path = path
        self._clock = clock

    def good(self) -> None:
        """Record that evidence was accepted now; raises FILE_UNUSABLE."""
        self._write(Pushed(at=self._clock.now()))

    def failed(self, error: AttestedError) -> None:
        """Record that evidence was not accepted, and why; raises FILE_UNUSABLE."""
        self._write(Pushed(at=self._clock.now(), reason=error.code, message=error.message[:_MAX_MESSAGE]))

    def load(self) -> Pushed | None:
        """Return the last push of this boot; None if there was none, or the file has an unknown format."""
        if not self._path.exists():
            return None
        try:
            found = json.loads(read_bytes(self._path, limit=_LIMIT))
            if found["version"] != _VERSION:
                return None
            at = datetime.fromisoformat(found["at"])
            return Pushed(at=at, reason=str(found["reason"]), message=str(found["message"]))
        except (ValueError, KeyError, TypeError):
            return None

    def _write(self, pushed: Pushed) -> None:
        body = {
            "version": _VERSION,
            "at": pushed.at.isoformat(timespec="seconds"),
            "reason": pushed.reason,
            "message": pushed.message,
        }
        write_atomic(self._path, json.dumps(body, indent=2).encode() + b"\n")
