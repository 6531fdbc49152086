# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths of a state disk: on tmpfs, on the machine's own disk, inside the volume."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NAME = "attested-state"
DIRECTORIES = (Path("/var/lib/kubelet"), Path("/var/lib/containerd"), Path("/var/lib/etcd"))
LEAST_BYTES = 16 << 30
"""The minimum size of a disk, unless the site sets another one."""
KERNEL_PARTS = ("dm_crypt", "dm_integrity")
CRYPTSETUP = (2, 6)
"""The oldest supported version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePaths:
    """Files and directories of a state disk.

    ``memory`` must be on tmpfs (``mounts`` is a table as in proc(5)).
    """

    memory: Path = Path("/run/attested/state-disk")
    journal: Path = Path("/var/lib/attested/state-disk.json")
    mount_point: Path = Path("/var/lib/attested/state")
    directories: tuple[Path, ...] = DIRECTORIES
    mounts: Path = Path("/proc/self/mounts")

    @property
    def first_key(self) -> Path:
        """The random first key, which is lost at a reboot."""
        return self.memory / "first.key"

    @property
    def header(self) -> Path:
        """The copied header that is verified, and with which keys are tried and the disk is opened."""
        return self.memory / "header"

    @property
    def progress(self) -> Path:
        """The progress of the wipe."""
        return self.memory / "progress.json"

    @property
    def counted(self) -> Path:
        """The marker that the unlock of this boot is counted."""
        return self.memory / "counted"

    @property
    def record(self) -> Path:
        """The record of unlocks, inside the volume."""
        return self.mount_point / "record.json"

    def inside(self, target: Path) -> Path:
        """Return the directory of the volume that is bind-mounted at ``target``."""
        return self.mount_point / "tree" / target.relative_to("/")
