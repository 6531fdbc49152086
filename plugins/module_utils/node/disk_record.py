# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The damage of the state disk seen in this boot, and when it was reported; on tmpfs, so it ends with the boot.

The kernel's log is a ring buffer. This record keeps damage that the log has already dropped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.files import read_bytes, write_atomic
from ..disk.kernel_log import Damage
from ..errors import DiskError
from ..reasons import Reason

if TYPE_CHECKING:
    from typing import Any

PATH = Path("/run/attested/disk-health.json")
_VERSION = 1
_NOTHING = Damage()
_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Damage of this boot, when the last of it was found, and when it was reported (None: not yet)."""

    damage: Damage = _NOTHING
    found_at: datetime | None = None
    reported_at: datetime | None = None

    def with_found(self, damage: Damage, *, now: datetime) -> Seen:
        """Return the state after ``damage`` was seen ``now``.

        If some of it is new, it counts as not yet reported.
        """
        more = self.damage.with_more(damage)
        return self if more == self.damage else Seen(damage=more, found_at=now)

    def reported(self, *, now: datetime) -> Seen:
        """Return the same damage, reported ``now``."""
        return replace(self, reported_at=now)

    def error(self) -> DiskError | None:
        """Return the damage as an error, None if there is none."""
        if not self.damage:
            return None
        return DiskError(
            f"expected each sector of the state disk as it was written, got {self.damage} with other "
            f"content, the lowest {self.damage.sectors[0]}",
            reason=Reason.STATE_DISK_CORRUPT,
        )


class DiskRecord:
    """The file of the record; `attested-disk-health` writes it, the node's status reads it."""

    def __init__(self, path: Path = PATH) -> None:
        """Store the path."""
        self._path = path

    def load(self) -> Seen:
        """Return the damage seen in this boot; a missing or unknown file counts as no damage."""
        if not self._path.exists():
            return Seen()
        try:
            found = json.loads(read_bytes(self._path, limit=_LIMIT))
            return _parsed(found) if found["version"] == _VERSION else Seen()
        except (ValueError, KeyError, TypeError):
            return Seen()

    def save(self, seen: Seen) -> None:
        """Write ``seen``; raises FILE_UNUSABLE."""
        body = {
            "version": _VERSION,
            "sectors": list(seen.damage.sectors),
            "found_at": _stamp(seen.found_at),
            "told_at": _stamp(seen.reported_at),
        }
        write_atomic(self._path, json.dumps(body).encode() + b"\n")


def _parsed(found: dict[str, Any]) -> Seen:
    return Seen(
        damage=Damage().with_more(Damage(tuple(int(sector) for sector in found["sectors"]))),
        found_at=_moment(found["found_at"]),
        reported_at=_moment(found["told_at"]),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
