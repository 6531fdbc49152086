# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S23: who has the disk puts it, or its header, back to an earlier state; or the counter is gone, or new."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import NV_DISK_COUNTER
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.storage import NvCounter
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.fakes.disk import UUID
from ansible_collections.attested.kubernetes.tests.unit.fakes.state_disk import DiskBed, sealed_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

THREAT = Threat(
    id="S23",
    title="Disk rollback",
    case="no peer detects it",
    bed="swtpm",
    stops=(
        ("disk/generation.py step 3", "STATE_DISK_ROLLED_BACK"),
        ("disk/generation.py step 5", "STATE_DISK_HEADER_CHANGED"),
        ("disk/generation.py step 1", "STATE_DISK_COUNTER_LOST"),
        ("disk/generation.py step 2", "STATE_DISK_RECORD"),
        ("tpm/storage.py", "TPM_NV_FOREIGN"),
    ),
)


class RealCounter:
    """The disk's counter in a real TPM, which is open during one call only."""

    def __init__(self, swtpm: Swtpm, opened: Opened) -> None:
        self.swtpm = swtpm
        self._opened = opened

    def define(self) -> int:
        with self._opened(self.swtpm) as tpm:
            return NvCounter(tpm, NV_DISK_COUNTER).define()

    def read(self) -> int | None:
        with self._opened(self.swtpm) as tpm:
            return NvCounter(tpm, NV_DISK_COUNTER).read()

    def increment(self) -> int:
        with self._opened(self.swtpm) as tpm:
            return NvCounter(tpm, NV_DISK_COUNTER).increment()


class Node:
    """A worker that has joined and whose disk was in use in two boots; between them somebody copied the disk."""

    def __init__(self, folder: Path, swtpm: Swtpm, opened: Opened) -> None:
        self.bed = DiskBed(folder)
        self.counter = RealCounter(swtpm, opened)
        self.bed.process.counter = self.counter
        self._copy = folder / "copy"
        self.boot(member=False)
        self.off()
        shutil.copytree(self.bed.device.filesystem, self._copy)
        self.boot()
        self.off()

    def boot(self, *, member: bool = True) -> None:
        self.bed.disk().open(disk_id=UUID, key=sealed_key(), member=member)

    def off(self) -> None:
        """Lose what is in memory, and let the TPM begin anew."""
        self.bed.device.reboot()
        self.counter.swtpm.reset()

    def put_back(self) -> None:
        """Bring the content of the disk to where it was after the first boot; header and key are the same as ever."""
        shutil.rmtree(self.bed.device.filesystem)
        shutil.copytree(self._copy, self.bed.device.filesystem)

    @property
    def record(self) -> Path:
        return self.bed.device.filesystem / "record.json"

    @property
    def used(self) -> bool:
        return bool(self.bed.device.mapped or self.bed.device.mounted() or self.bed.device.targets)


@pytest.fixture
def node(tmp_path: Path, swtpm: Swtpm, opened: Opened) -> Node:
    return Node(tmp_path, swtpm, opened)


def test_the_disk_as_it_was_left_is_opened_and_counted(node: Node) -> None:
    """The measure of the others."""
    before = node.counter.read()
    node.boot()
    assert before is not None
    assert (node.counter.read(), node.used) == (before + 1, True)


def of_an_earlier_boot(node: Node) -> None:
    node.put_back()


def with_an_older_header(node: Node) -> None:
    node.bed.device.sequence -= 1


def without_its_record(node: Node) -> None:
    node.record.unlink()


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        pytest.param(of_an_earlier_boot, "STATE_DISK_ROLLED_BACK", id="the whole disk put back"),
        pytest.param(with_an_older_header, "STATE_DISK_HEADER_CHANGED", id="its header put back"),
        pytest.param(without_its_record, "STATE_DISK_RECORD", id="from before its record"),
    ],
)
def test_a_disk_that_was_put_back_is_taken_away_again(node: Node, attack: Callable[[Node], None], code: str) -> None:
    before = node.counter.read()
    attack(node)
    assert code_of(node.boot) == code
    assert (node.counter.read(), node.used) == (before, False)


def test_a_disk_in_a_machine_with_another_tpm(node: Node, swtpms: Callable[..., Swtpm]) -> None:
    """A TPM that was replaced, or cleared: nothing is counted anew by itself."""
    node.counter.swtpm = swtpms("another")
    assert code_of(node.boot) == "STATE_DISK_COUNTER_LOST"
    assert (node.counter.read(), node.used) == (None, False)


def undefined(node: Node, tool: Callable[..., str]) -> None:
    tool(node.counter.swtpm, "nvundefine", f"{NV_DISK_COUNTER:#x}", "-C", "o")


def cleared(node: Node, tool: Callable[..., str]) -> None:
    tool(node.counter.swtpm, "clear", "-c", "l")


@pytest.mark.parametrize("taken_away", [undefined, cleared], ids=["undefined", "the TPM cleared"])
def test_a_counter_that_was_made_anew_takes_no_earlier_state(
    node: Node, tool: Callable[..., str], taken_away: Callable[[Node, Callable[..., str]], None]
) -> None:
    """A TPM begins a new counter above all that it ever had: who makes it anew comes no nearer to the copy's number."""
    before = node.counter.read()
    taken_away(node, tool)
    assert node.counter.read() is None
    node.put_back()
    assert code_of(node.boot) == "STATE_DISK_COUNTER_LOST"
    anew = node.counter.define()
    assert before is not None
    assert anew > before
    assert code_of(node.boot) == "STATE_DISK_ROLLED_BACK"
    assert (node.counter.read(), node.used) == (anew, False)


def test_the_last_state_is_refused_as_well_beside_a_counter_that_was_made_anew(
    node: Node, tool: Callable[..., str]
) -> None:
    """What nobody put back: taking the counter away costs a node its disk, and brings nobody anything."""
    undefined(node, tool)
    node.counter.define()
    assert code_of(node.boot) == "STATE_DISK_ROLLED_BACK"
    assert not node.used


def test_a_counter_of_another_kind_in_its_place_is_not_read(node: Node, tool: Callable[..., str]) -> None:
    """An index that takes any number would let an attacker write the copy's."""
    undefined(node, tool)
    index = f"{NV_DISK_COUNTER:#x}"
    tool(node.counter.swtpm, "nvdefine", index, "-C", "o", "-s", "8", "-a", "ownerwrite|ownerread|authread|no_da")
    node.put_back()
    assert code_of(node.boot) == "TPM_NV_FOREIGN"
    assert not node.used
