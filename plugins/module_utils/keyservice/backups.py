# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a control plane keeps the backups of etcd that it takes by a timer (`attested-agent backup`)."""

from __future__ import annotations

from pathlib import Path

BACKUPS = Path("/var/lib/attested/backups")


def newest_backup(directory: Path = BACKUPS) -> float:
    """Return when the newest backup of etcd in ``directory`` was written, seconds since 1970; 0 where there is none."""
    newest = max(directory.glob("etcd-[0-9]*Z.age"), default=None)  # their names are in the order of time
    return 0.0 if newest is None else newest.stat().st_mtime
