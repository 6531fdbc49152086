# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slice of the power-cut matrix (tests/system/state_disk): where most would be lost if the order were another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.power_cuts import CUTS, STEPS, WANTED, pull_the_plug

if TYPE_CHECKING:
    from pathlib import Path

SLICE = [("format", "DROP_FIRST"), ("format", "INITIALISE"), ("unlock", "ADVANCE"), ("rekey", "DROP_BESIDE")]


@pytest.mark.slow
@pytest.mark.parametrize(("course", "step"), SLICE)
def test_the_boot_after_a_power_cut_goes_on(course: str, step: str, tmp_path: Path) -> None:
    assert pull_the_plug(course, step, tmp_path) == WANTED[course]


def test_the_slice_is_of_every_course() -> None:
    assert set(SLICE) <= set(CUTS)
    assert {course for course, _step in SLICE} == set(STEPS)
