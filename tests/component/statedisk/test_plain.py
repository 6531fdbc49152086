# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our commands and the real cryptsetup, on a LUKS2 file without integrity, which would need device mapper."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.disk import gateway
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.gateway import LinuxDevice
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_check import STATE_DISK, verify_header
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.paths import StatePaths
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

if TYPE_CHECKING:
    from pathlib import Path

UUID = "71111111-2222-4333-8444-555555555555"
PLAIN = dataclasses.replace(STATE_DISK, integrity=frozenset({""}))
FIRST, PERMANENT, WRONG = (DiskKey(bytes(range(start, start + 32))) for start in (0, 64, 128))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A file that our command formatted, integrity and progress left out."""
    if shutil.which("cryptsetup") is None:
        pytest.skip("no cryptsetup here (package cryptsetup-bin)")
    path = tmp_path / "disk.img"
    with path.open("wb") as stream:
        stream.truncate(20 << 20)
    words = list(gateway.format_disk(str(path), uuid=UUID))
    for name in ("--integrity", "--progress-frequency"):
        del words[words.index(name) : words.index(name) + 2]
    words.remove("--progress-json")
    subprocess.run(words, input=FIRST.reveal(), capture_output=True, check=True)
    return path


@pytest.fixture
def device(image: Path, tmp_path: Path) -> LinuxDevice:
    runner = SystemRunner()
    paths = StatePaths(memory=tmp_path, mount_point=tmp_path / "point", directories=())
    return LinuxDevice(str(image), paths=paths, runner=runner, follower=runner)


def fits(device: LinuxDevice, *slots: int) -> list[tuple[bool, bool]]:
    device.copy_header()
    return [(device.opens(slot, FIRST), device.opens(slot, PERMANENT)) for slot in slots]


def test_the_key_is_exchanged_and_somebody_can_open_the_disk_at_each_moment(device: LinuxDevice) -> None:
    """What the strict reader makes of each state, and which key opens which slot."""
    device.write_token(initialised=False)
    fresh = verify_header(device.copy_header(), PLAIN, uuid=UUID)
    assert (fresh.initialised, fits(device, 0)) == (False, [(True, False)])
    device.add_key(slot=1, known=FIRST, new=PERMANENT)
    assert fits(device, 0, 1) == [(True, False), (False, True)]
    device.drop_key(slot=0, known=PERMANENT)
    assert fits(device, 1) == [(False, True)]
    device.add_key(slot=0, known=PERMANENT, new=PERMANENT)
    assert fits(device, 0, 1) == [(False, True), (False, True)]
    device.drop_key(slot=1, known=PERMANENT)
    device.write_token(initialised=True)
    used = verify_header(device.copy_header(), PLAIN, uuid=UUID, volume=fresh.volume)
    assert (used.initialised, fits(device, 0)) == (True, [(False, True)])


def test_a_slot_goes_only_with_a_key_that_opens_another_one(device: LinuxDevice) -> None:
    device.add_key(slot=1, known=FIRST, new=PERMANENT)
    assert code_of(lambda: device.drop_key(slot=0, known=WRONG)) == "COMMAND_FAILED"
    assert fits(device, 0, 1) == [(True, False), (False, True)]


def test_a_wrong_key_opens_and_adds_nothing(device: LinuxDevice) -> None:
    device.copy_header()
    assert not device.opens(0, WRONG)
    assert code_of(lambda: device.add_key(slot=1, known=WRONG, new=PERMANENT)) == "COMMAND_FAILED"


def test_a_key_is_nowhere_on_the_disk_and_in_no_file(device: LinuxDevice, image: Path) -> None:
    device.add_key(slot=1, known=FIRST, new=PERMANENT)
    device.copy_header()
    device.opens(1, PERMANENT)
    needles = [*spellings(FIRST.reveal()), *spellings(PERMANENT.reveal())]
    files = {path.name: path.read_bytes() for path in image.parent.iterdir()}
    assert set(files) == {"disk.img", "header"}
    assert [name for name, content in files.items() for needle in needles if needle in content] == []


def test_what_is_on_a_disk_is_listed_and_erased(device: LinuxDevice, image: Path) -> None:
    def found() -> list[str]:
        done = subprocess.run(gateway.list_signatures(str(image)), capture_output=True, check=True)
        return [row["type"] for row in json.loads(done.stdout)["signatures"]]

    assert found() == ["crypto_LUKS", "crypto_LUKS"]
    device.erase()
    assert found() == []
