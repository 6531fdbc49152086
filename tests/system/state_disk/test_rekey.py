# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk in use goes over to another key on a real dm-crypt and dm-integrity, killed before each of the steps."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.disk_bed import REKEY_STEPS
from ansible_collections.attested.kubernetes.tests.support.disk_kernel import run_disk_bed
from ansible_collections.attested.kubernetes.tests.support.power_cuts import WANTED

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("begin", [0, pytest.param(3, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_a_kill_before_each_step_is_gone_on_with(begin: int, tmp_path: Path) -> None:
    """Those before odd steps come with a reboot, and a ticket whose leading key is still the old one.

    The old key opens no slot of the header at the end, and still the header that was copied before.
    """
    numbers = [number for number in range(begin, begin + 3) if number < REKEY_STEPS]
    ends = run_disk_bed("rekeys", *numbers, folder=tmp_path)
    assert sorted(ends, key=int) == [str(number) for number in numbers]
    for end in ends.values():
        assert end.pop("signal") == signal.SIGKILL
        assert end == {**WANTED["rekey"], "leaked": []}


def test_cryptsetup_gives_a_disk_with_integrity_no_other_volume_key(tmp_path: Path) -> None:
    """What docs/machines.md and ADR 0042 say of it; the day this fails, they can offer it."""
    answer = run_disk_bed("reencryption", folder=tmp_path)
    assert answer["code"] != 0
    assert "integrity" in answer["said"]
