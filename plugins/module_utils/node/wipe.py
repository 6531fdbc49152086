# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a reset destroys of ours: keys, tickets, journal. The lock stays, since only a reset of the machine ends it."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

from ..errors import SystemFault
from ..reasons import Reason

LEFT = tuple(
    PurePosixPath(name)
    for name in (
        "etc/attested/join-service.yml",
        "etc/attested/key-service.yml",
        "run/attested/control-plane-renewal",
        "run/attested/disk-health.json",
        "run/attested/joined",
        "run/attested/key-service",
        "run/attested/pushed.json",
        "run/attested/renewal",
        "run/attested/tickets",
        "var/lib/attested/accepted-boot.json",
        "var/lib/attested/founder-disk",
        "var/lib/attested/key-service",
        "var/lib/attested/node.json",
        "var/lib/attested/services",
        "var/lib/attested/volume",
    )
)


class Wipe:
    """Removes the files of one node below ``root``."""

    def __init__(self, root: Path) -> None:
        """Keep the root of the machine."""
        self._root = root

    def plan(self) -> tuple[PurePosixPath, ...]:
        """Return what is there."""
        return tuple(path for path in LEFT if (self._root / path).exists())

    def apply(self, todo: tuple[PurePosixPath, ...]) -> None:
        """Remove it; raises FILE_UNUSABLE.

        Keys on a disk are only as gone as the disk forgets; the copy at rest is useless without this TPM in the
        judged state, which is why it may lie there at all. One that lay on a state disk went with the disk's keys.
        """
        for path in todo:
            _remove(self._root / path)


def _remove(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise SystemFault(f"cannot remove {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
