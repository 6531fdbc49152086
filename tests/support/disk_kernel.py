# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a scenario of `disk_bed.py` in a kernel with dm-integrity, and return its result."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.house import ROOT, SOURCES
from ansible_collections.attested.kubernetes.tests.support.uml import missing_packages, run_in_uml

if TYPE_CHECKING:
    from pathlib import Path

MEBIBYTES = 28


def blank_disks(folder: Path) -> list[Path]:
    """Create the disks of the kernel; skips with the reason if packages are missing."""
    if missing := missing_packages():
        pytest.skip(f"no kernel with dm-integrity here: {', '.join(missing)} not installed")
    # the kernel names its root after the first disk, so that one would look mounted
    disks = [folder / "none.img", folder / "disk.img"]
    for disk in disks:
        with disk.open("wb") as stream:
            stream.truncate(MEBIBYTES << 20)
    return disks


def run_disk_bed(scenario: str, *numbers: int, folder: Path) -> dict[str, Any]:
    """Return the scenario's JSON; skips like `blank_disks`."""
    disks = blank_disks(folder)
    program = f"{sys.executable} {ROOT}/tests/support/disk_bed.py {scenario} {' '.join(map(str, numbers))}"
    run_in_uml(f"export PYTHONPATH={SOURCES}\n{program}\n", folder=folder, disks=disks)
    found: dict[str, Any] = json.loads((folder / f"{scenario}.json").read_text(encoding="utf-8"))
    return found
