# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was seen of the state disk in this boot, and when the cluster was told; on tmpfs, so it ends with the boot.

The kernel's log is a ring: what it has forgotten is still here.
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
    """Damage of this boot, when the last of it was found, and when the cluster was told so (None: not yet)."""

    damage: Damage = _NOTHING
    found_at: datetime | None = None
    reported_at: datetime | None = None

    def with_found(self, damage: Damage, *, now: datetime) -> Seen:
        """Return what is known when ``damage`` is seen ``now``: where some of it is new, nobody was told yet."""
        more = self.damage.with_more(damage)
        return self if more == self.damage else Seen(damage=more, found_at=now)

    def reported(self, *, now: datetime) -> Seen:
        """Return the same, told ``now``."""
        return replace(self, reported_at=now)

    def error(self) -> DiskError | None:
        """Return what is wrong with the disk as an error, None where nothing is."""
        if not self.damage:
            return None
        return DiskError(
            f"expected each sector of the state disk as it was written, got {self.damage} of another "
            f"content, the lowest {self.damage.sectors[0]}",
            reason=Reason.STATE_DISK_CORRUPT,
        )


class DiskRecord:
    """The file of it; `attested-disk-health` writes it, who asks for the status reads it."""

    def __init__(self, path: Path = PATH) -> None:
        """Keep the path."""
        self._path = path

    def load(self) -> Seen:
        """Return what was seen in this boot: nothing where there is no file, or it is not one of ours."""
        if not self._path.exists():
            return Seen()
        try:
            found = json.loads(read_bytes(self._path, limit=_LIMIT))
            return _parsed(found) if found["version"] == _VERSION else Seen()
        except (ValueError, KeyError, TypeError):
            return Seen()

    def save(self, seen: Seen) -> None:
        """Keep ``seen``; raises FILE_UNUSABLE."""
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
