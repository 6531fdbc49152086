# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a reset destroys of ours: keys, tickets, journal. The lock stays, since only a reset of the machine ends it."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ..errors import SystemFault
from ..keyservice.initial_disk import FounderDisk
from ..reasons import Reason
from .run_record import COMMANDS, file_name
from .services import UNITS
from .state_disk import MachineDisk

if TYPE_CHECKING:
    from ..core.command import Runner
    from ..policy.identity import Role
    from .journal import NodeJournal
    from .state_disk import DiskSettings


LEFT = tuple(
    PurePosixPath(name)
    for name in (
        "etc/attested/join-service.yml",
        "etc/attested/key-service.yml",
        "run/attested/control-plane-renewal",
        "run/attested/disk-health.json",
        "run/attested/joined",
        "run/attested/key-service",
        *(f"run/attested/{file_name(command)}" for command in COMMANDS),
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


# The state disk of a machine that is reset: nobody uses it any more, and its keys are overwritten.

_USERS = (*reversed(UNITS), "attested-bootstrapper.service")
"""What may hold the volume: units that run in mounts of their own keep a place of it for themselves."""

_STOP_SECONDS = 120


def known_disk_id(journal: NodeJournal, *, note: FounderDisk | None = None) -> str:
    """Return the id that was assigned to this machine's disk, or that it drew itself; empty where it has none."""
    drawn = (note or FounderDisk()).load()
    return journal.load().disk_id or (drawn.uuid if drawn else "")


class PartingDisk:
    """The disk that a site names for the machine, with the id that it knows of."""

    def __init__(
        self,
        settings: DiskSettings,
        *,
        tcti: str,
        role: Role,
        disk_id: str,
        runner: Runner,
        disk: MachineDisk | None = None,
    ) -> None:
        """Let go of the disk of ``settings``, on which ``role`` says what lies."""
        self.device = settings.device
        self._disk = disk or MachineDisk(settings, tcti=tcti, role=role)
        self._disk_id = disk_id
        self._runner = runner

    def plan(self) -> tuple[str, ...]:
        """Return the steps, none where nothing of ours is on it; raises as `MachineDisk.destroyed`."""
        return self._disk.destroyed(disk_id=self._disk_id, check_mode=True)

    def apply(self) -> None:
        """Stop who may still use it, close it, overwrite its keys; raises as `MachineDisk.destroyed`."""
        self._runner.run(["systemctl", "stop", *_USERS], timeout_seconds=_STOP_SECONDS, check=False)
        self._disk.destroyed(disk_id=self._disk_id, check_mode=False)
