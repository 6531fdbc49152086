# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process is killed before each step of a state disk's first use, on a real dm-crypt and dm-integrity."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.disk_bed import STEPS
from ansible_collections.attested.kubernetes.tests.support.disk_kernel import run_disk_bed
from ansible_collections.attested.kubernetes.tests.support.power_cuts import WANTED

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(0, STEPS, 3))
def test_a_kill_before_each_step_is_continued(begin: int, tmp_path: Path) -> None:
    """Those before odd steps come with a reboot, which forgets the first key."""
    numbers = list(range(begin, min(begin + 3, STEPS)))
    ends = run_disk_bed("cuts", *numbers, folder=tmp_path)
    assert sorted(ends, key=int) == [str(number) for number in numbers]
    for end in ends.values():
        assert end.pop("signal") == signal.SIGKILL
        assert end == WANTED["format"]
