# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The power-cut matrix: before each step of format, unlock and exchange of keys, and behind the last one.

The machine is a User Mode Linux with a real dm-crypt and dm-integrity, killed whole; the next boot goes on. What came
of each cut is in docs/records/DATE-power-cuts.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.power_cuts import CUTS, WANTED, pull_the_plug
from ansible_collections.attested.kubernetes.tests.support.records import POWER_CUTS, recorded

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("course", "step"), CUTS)
def test_the_boot_after_a_power_cut_goes_on(course: str, step: str, tmp_path: Path) -> None:
    with recorded(f"{course}:{step}", "power cut", kind=POWER_CUTS):
        assert pull_the_plug(course, step, tmp_path) == WANTED[course]
