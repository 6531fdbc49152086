# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state disk of a node: what is on a disk, what may be done with it, and doing it. Private to the collection."""

from __future__ import annotations

from .damage import Damage
from .facts import DiskFacts, Signature
from .form import inspect, key_name_of, run, wipe_progress
from .gateway import LinuxDevice
from .generation import Counter, Record, parse_record, render_record, verify_record
from .guard import read_key
from .kernel_log import KernelLog, KmsgLog, damage_now
from .paths import CRYPTSETUP, KERNEL_PARTS, LEAST_BYTES, NAME, StatePaths
from .plan import BY_ID, Observed, Plan, Standing, Step, Target, Wanted, exchange_of, plan, require_by_id, standing_of
from .process import ask_key_process, serve_key_job

__all__ = [
    "BY_ID",
    "CRYPTSETUP",
    "KERNEL_PARTS",
    "LEAST_BYTES",
    "NAME",
    "Counter",
    "Damage",
    "DiskFacts",
    "KernelLog",
    "KmsgLog",
    "LinuxDevice",
    "Observed",
    "Plan",
    "Record",
    "Signature",
    "Standing",
    "StatePaths",
    "Step",
    "Target",
    "Wanted",
    "ask_key_process",
    "damage_now",
    "exchange_of",
    "inspect",
    "key_name_of",
    "parse_record",
    "plan",
    "read_key",
    "render_record",
    "require_by_id",
    "run",
    "serve_key_job",
    "standing_of",
    "verify_record",
    "wipe_progress",
]
