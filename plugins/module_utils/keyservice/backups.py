# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directory of the etcd backups that a control plane takes on a timer (`attested-agent backup`)."""

from __future__ import annotations

from pathlib import Path

BACKUPS = Path("/var/lib/attested/backups")


def newest_backup(directory: Path = BACKUPS) -> float:
    """Return when the newest etcd backup in ``directory`` was written, in Unix seconds; 0 if there is none."""
    newest = max(directory.glob("etcd-[0-9]*Z.age"), default=None)  # the names sort by time
    return 0.0 if newest is None else newest.stat().st_mtime
