# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rescue kit: what follows from a cluster's master secret, and a disk opened with it. Needs no cluster. Private."""

from __future__ import annotations

from .disk import DiskCopy, copy_header, disk_id_of, judge_copy, require_key
from .mount import Mounted, mount_disk, unmount_disk
from .state import ClusterValues, parse_state
from .values import ClusterSecrets, PublicValues, derive_cluster, lock_value

__all__ = [
    "ClusterSecrets",
    "ClusterValues",
    "DiskCopy",
    "Mounted",
    "PublicValues",
    "copy_header",
    "derive_cluster",
    "disk_id_of",
    "judge_copy",
    "lock_value",
    "mount_disk",
    "parse_state",
    "require_key",
    "unmount_disk",
]
