# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a machine can be an attested node, before anything of ours is on it: facts, then findings.

Needs no library beyond Python's own; what would need one is told as not looked at. Private to the collection.
"""

from __future__ import annotations

from .facts import BootView, DiskView, Expected, MachineView, Skew, StateDisk, TpmView
from .form import run_preflight
from .gateway import PreflightReader
from .judge import Finding, Level, judge

__all__ = [
    "BootView",
    "DiskView",
    "Expected",
    "Finding",
    "Level",
    "MachineView",
    "PreflightReader",
    "Skew",
    "StateDisk",
    "TpmView",
    "judge",
    "run_preflight",
]
