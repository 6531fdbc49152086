# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things lie: in memory, on the machine's own disk, inside the volume."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NAME = "attested-state"
DIRECTORIES = (Path("/var/lib/kubelet"), Path("/var/lib/containerd"), Path("/var/lib/etcd"))
LEAST_BYTES = 16 << 30
"""A smaller disk is refused where the site does not say another size."""
KERNEL_PARTS = ("dm_crypt", "dm_integrity")
CRYPTSETUP = (2, 6)
"""The oldest version that our headers were made and read with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePaths:
    """Files and directories of a state disk; ``memory`` has to be on tmpfs (by the table ``mounts``, as in proc(5))."""

    memory: Path = Path("/run/attested/state-disk")
    journal: Path = Path("/var/lib/attested/state-disk.json")
    mount_point: Path = Path("/var/lib/attested/state")
    directories: tuple[Path, ...] = DIRECTORIES
    mounts: Path = Path("/proc/self/mounts")

    @property
    def first_key(self) -> Path:
        """The random first key, which a reboot forgets."""
        return self.memory / "first.key"

    @property
    def header(self) -> Path:
        """The copied header while it is judged, tried and opened from."""
        return self.memory / "header"

    @property
    def progress(self) -> Path:
        """How far the wipe is."""
        return self.memory / "progress.json"

    @property
    def counted(self) -> Path:
        """The marker of this boot's counted unlock."""
        return self.memory / "counted"

    @property
    def record(self) -> Path:
        """The record of unlocks, inside the volume."""
        return self.mount_point / "record.json"

    def inside(self, target: Path) -> Path:
        """Return the directory of the volume that stands for ``target``."""
        return self.mount_point / "tree" / target.relative_to("/")
