# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk id of the founder: no key service existed that could assign it (docs/adr/0048).

The id is generated before the disk is formatted. It is stored on the machine's own disk and outside of the node's
journal, because a join client that yields to the init rolls the journal back. The key service writes the id into the
machine's identity.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..core.files import make_directory, read_bytes, write_atomic
from .derive import DiskId

if TYPE_CHECKING:
    from ..core.host import Random

FOUNDER_DISK = Path("/var/lib/attested/founder-disk")
_UUID_BYTES = 16
_LIMIT = 256


class FounderDisk:
    """The file of the id: one UUID, which is no secret."""

    def __init__(self, path: Path = FOUNDER_DISK) -> None:
        """Store the path."""
        self._path = path

    def load(self) -> DiskId | None:
        """Return the id, or None if no init created a disk here; raises DISK_ID_MALFORMED, FILE_UNUSABLE."""
        if not self._path.exists():
            return None
        return DiskId(read_bytes(self._path, limit=_LIMIT).decode("ascii", "replace").strip())

    def drawn(self, random: Random) -> DiskId:
        """Return the id, and generate it if there is none yet; raises as `load` does."""
        known = self.load()
        if known is not None:
            return known
        disk = DiskId.from_random(random.token(_UUID_BYTES))
        make_directory(self._path.parent, mode=0o755)
        write_atomic(self._path, f"{disk.uuid}\n".encode("ascii"), mode=0o644)
        return disk
