# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event logs: parsed strictly, replayed to register values, put into words. Private to the collection."""

from __future__ import annotations

from . import kinds
from .describe import describe, printable
from .facts import boot_facts
from .nodelock import (
    DEFAULT_REGISTER,
    LOCK_KIND,
    SOURCE_KIND,
    LockReading,
    LockState,
    read_lock,
    require_lock_register,
    value_before_lock,
)
from .reading import TOPICS, BootLine, read_boot
from .replay import extend, initial_value, replay, verify_replay
from .tcg import parse_firmware_log
from .types import FirmwareEvent, FirmwareLog, UserspaceRecord
from .userspace import parse_records

__all__ = [
    "DEFAULT_REGISTER",
    "LOCK_KIND",
    "SOURCE_KIND",
    "TOPICS",
    "BootLine",
    "FirmwareEvent",
    "FirmwareLog",
    "LockReading",
    "LockState",
    "UserspaceRecord",
    "boot_facts",
    "describe",
    "extend",
    "initial_value",
    "kinds",
    "parse_firmware_log",
    "parse_records",
    "printable",
    "read_boot",
    "read_lock",
    "replay",
    "require_lock_register",
    "value_before_lock",
    "verify_replay",
]
