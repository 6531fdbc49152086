# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the condition of a Node is derived from: the words of a real dm-crypt about a sector that somebody changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.disk_bed import BLOCKS, FLIPPED
from ansible_collections.attested.kubernetes.tests.support.disk_kernel import run_disk_bed

if TYPE_CHECKING:
    from pathlib import Path


WORDS = re.compile(r"3,\d+,\d+,-;(\w+: )?device-mapper: crypt: (dm-\d+): INTEGRITY AEAD ERROR, sector (\d+)\n")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the scenario saw, in one kernel for all tests."""
    folder: Path = tmp_path_factory.mktemp("told")
    return run_disk_bed("told", folder=folder)


def test_one_changed_sector_is_found_in_the_kernels_log_once_it_was_read(seen: dict[str, Any]) -> None:
    """And not what a process wrote there in the kernel's words, or what it says of a disk that is closed."""
    expected = ["as written"] * BLOCKS
    expected[FLIPPED] = "EIO"
    assert (seen["closed"], seen["before"], seen["blocks"]) == ([], [], expected)
    assert seen["after"] == [seen["place"]]


def test_the_words_are_those_that_we_look_for(seen: dict[str, Any]) -> None:
    """If a kernel said it otherwise, or counted it where `dmsetup status` shows it, one would see that here."""
    forged, *said = seen["words"]
    assert forged.startswith("12,")
    found = [WORDS.fullmatch(line) for line in said]
    assert {(one[2], int(one[3])) for one in found if one} == {(seen["below"], seen["place"])}
    assert None not in found
    assert re.search(r"^attested-state_dif: .* integrity 0 ", seen["status"], re.MULTILINE)
