# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one-way lock of a machine: one TPM event that says to which cluster this boot belongs.

What a register's value means is read by `attestation.eventlog`, by verifier and node alike; here the lock is taken.
Private to the collection; other packages import from here.
"""

from __future__ import annotations

from ..attestation.eventlog import LockReading, LockState
from .form import run
from .lock import Acquisition, Hooks, NodeLock, require_open_to
from .paths import NodeLockPaths

__all__ = [
    "Acquisition",
    "Hooks",
    "LockReading",
    "LockState",
    "NodeLock",
    "NodeLockPaths",
    "require_open_to",
    "run",
]
