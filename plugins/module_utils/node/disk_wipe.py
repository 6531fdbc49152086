# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state disk of a machine that is reset: nobody uses it any more, and its keys are overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..keys.founder_disk import FounderDisk
from .services import UNITS
from .state_disk import MachineDisk

if TYPE_CHECKING:
    from ..policy import Role
    from ..system import Runner
    from .journal import NodeJournal
    from .state_disk import DiskSettings

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
