# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Destroys our files at a reset of the node: keys, tickets, journal. The lock stays until the machine is rebooted."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ..errors import SystemFault
from ..keyservice.initial_disk import FounderDisk
from ..reasons import Reason
from .playbook import UNITS
from .run_record import COMMANDS, file_name
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
        """Store the root directory of the machine."""
        self._root = root

    def plan(self) -> tuple[PurePosixPath, ...]:
        """Return the existing files."""
        return tuple(path for path in LEFT if (self._root / path).exists())

    def apply(self, todo: tuple[PurePosixPath, ...]) -> None:
        """Remove the files ``todo``; raises FILE_UNUSABLE.

        A storage device may keep the content of removed files. The copy of the keys at rest is useless without this TPM
        in the verified state; a copy on a state disk is unreadable since the disk's keys were destroyed.
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


# The state disk of a node that is reset: its users are stopped, and its keys are overwritten.

_USERS = (*reversed(UNITS), "attested-bootstrapper.service")
"""Units that may keep the volume busy: a unit with its own mount namespace has its own mounts of the volume."""

_STOP_SECONDS = 120


def known_disk_id(journal: NodeJournal, *, note: FounderDisk | None = None) -> str:
    """Return the disk id that was assigned to this machine or that it drew itself, "" if it has none."""
    drawn = (note or FounderDisk()).load()
    return journal.load().disk_id or (drawn.uuid if drawn else "")


class DestroyedDisk:
    """The state disk of a node that is reset, with its known id."""

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
        """Destroy the disk of ``settings``; ``role`` determines the directories on it."""
        self.device = settings.device
        self._disk = disk or MachineDisk(settings, tcti=tcti, role=role)
        self._disk_id = disk_id
        self._runner = runner

    def plan(self) -> tuple[str, ...]:
        """Return the steps, none if the disk is empty; raises as `MachineDisk.destroyed`."""
        return self._disk.destroyed(disk_id=self._disk_id, check_mode=True)

    def apply(self) -> None:
        """Stop the units that may use the disk, close it, overwrite its keys.

        Raises as `MachineDisk.destroyed`.
        """
        self._runner.run(["systemctl", "stop", *_USERS], timeout_seconds=_STOP_SECONDS, check=False)
        self._disk.destroyed(disk_id=self._disk_id, check_mode=False)
