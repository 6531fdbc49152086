# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power cuts of a machine with a state disk: kill its kernel before a step, and boot another one with the disk.

Unwritten data of that kernel are lost, as in a power cut; the host's caches stay.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.tests.support.disk_bed import NAME
from ansible_collections.attested.kubernetes.tests.support.disk_kernel import blank_disks
from ansible_collections.attested.kubernetes.tests.support.house import ROOT, SOURCES
from ansible_collections.attested.kubernetes.tests.support.power_bed import END
from ansible_collections.attested.kubernetes.tests.support.uml import cut_in_uml, run_in_uml

if TYPE_CHECKING:
    from pathlib import Path

_EXCHANGE = ("ADD_BESIDE", "DROP_FIRST", "ADD_PERMANENT", "DROP_BESIDE")
STEPS = {
    "format": (
        *("REMEMBER", "FORMAT", "NOTE", "FORGET"),
        *_EXCHANGE,
        *("OPEN", "MAKE_FILESYSTEM", "MOUNT", "BEGIN_RECORD", "INITIALISE", "ADVANCE", "BIND", END),
    ),
    "unlock": ("OPEN", "MOUNT", "CHECK", "ADVANCE", "BIND", END),
    "rekey": ("LOOSEN", *_EXCHANGE, "PROVE", "RECORD", END),
}
"""The steps of each course in order, and the end."""

CUTS = [(course, step) for course, steps in STEPS.items() for step in steps]

_IN_USE = {
    "left": [],
    "agrees": [True, True],
    "slots": [0],
    "initialised": True,
    "memory": ["counted"],
    "journal": False,
}
_REKEYED = {"left": [], "now": [False, True], "before": [True, False], "record": [True, True, NAME]}
WANTED: dict[str, dict[str, Any]] = {
    "format": _IN_USE,
    "unlock": {**_IN_USE, "data": True},
    "rekey": {**_REKEYED, "data": True},
}
"""The final state of each course for all power cuts: no written data are lost."""


def pull_the_plug(course: str, step: str, folder: Path) -> dict[str, Any]:
    """Cut the power before a step; return the result of the next boot. Skips like `blank_disks`."""
    disks = blank_disks(folder)
    program = f"export PYTHONPATH={SOURCES}\n{sys.executable} {ROOT}/tests/support/power_bed.py {course}"
    cut_in_uml(f"{program} {step}\n", folder=folder, disks=disks, sign=folder / "cut")
    run_in_uml(f"{program} after\n", folder=folder, disks=disks)
    found: dict[str, Any] = json.loads((folder / "after.json").read_text(encoding="utf-8"))
    return found
