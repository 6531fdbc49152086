# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one-way lock of a machine: one TPM event that says to which cluster this boot belongs.

`log` is the record as bytes, `reading` what a register's value means (pure), `lock` takes the lock.
Private to the collection; other packages import from here.
"""

from __future__ import annotations

from .lock import Acquisition, Hooks, NodeLock, NodeLockPaths, acquire, read_state
from .log import LockRecord, find_record, render_record
from .reading import DEFAULT_INDEX, Reading, State, lock_digest, read_value, require_usable_index

__all__ = [
    "DEFAULT_INDEX",
    "Acquisition",
    "Hooks",
    "LockRecord",
    "NodeLock",
    "NodeLockPaths",
    "Reading",
    "State",
    "acquire",
    "find_record",
    "lock_digest",
    "read_state",
    "read_value",
    "render_record",
    "require_usable_index",
]
