# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S22: who has the disk changes a sector of it: what was written is read, or nothing is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_header import read_header
from ansible_collections.attested.kubernetes.tests.support.disk_bed import BLOCKS, FLIPPED
from ansible_collections.attested.kubernetes.tests.support.disk_kernel import run_disk_bed
from ansible_collections.attested.kubernetes.tests.support.luks import vector
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.swtpm import SwtpmFactory, missing_tools
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from pathlib import Path

THREAT = Threat(
    id="S22",
    title="Disk tampering",
    case="systemd#39295: LUKS2 without integrity",
    bed="kernel",
    stops=(
        ("disk/gateway.py", ""),
        ("core/files.py", "FILE_UNUSABLE"),
        ("disk/luks_header.py", "LUKS_DAMAGED"),
    ),
)


def test_a_changed_sector_is_an_error_and_never_other_data(tmp_path: Path) -> None:
    """A disk that our module made and opens; its neighbours are read as they were written."""
    if missing := missing_tools():
        pytest.skip(f"no real TPM here: {', '.join(missing)} not installed (packages swtpm, swtpm-tools, gnutls-bin)")
    state = SwtpmFactory(tmp_path / "tpms").state("disk", certified=False)
    shutil.copytree(state, tmp_path / "tpm")
    seen = run_disk_bed("flipped", folder=tmp_path)
    expected = ["as written"] * BLOCKS
    expected[FLIPPED] = "EIO"
    assert seen["opened"] == ["open", "check", "mount", "advance", "bind"]
    assert seen["blocks"] == expected
    assert (seen["record"], seen["mapped"]) == ("FILE_UNUSABLE", ["control"])


@pytest.mark.parametrize("at", [0x1C8, 5000, 16384 + 5000], ids=["a checksum", "the text", "the second copy's text"])
def test_a_changed_sector_of_the_header(at: int) -> None:
    good = vector()
    assert read_header(good)
    changed = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
    assert code_of(lambda: read_header(changed)) == "LUKS_DAMAGED: checksum"
