# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copying, trying and mounting a disk, with a runner that notes what is run; tests/component has cryptsetup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.disk import (
    DiskCopy,
    Partition,
    copy_header,
    judge_copy,
    mount_disk,
    require_key,
    unmount_disk,
)
from ansible_collections.attested.kubernetes.tests.support.luks import vector, with_json
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEY = DiskKey(b"a key that must be in no argv...")
THEIRS = "constellation"
SIZE = 16 << 20


class Noting:
    """A runner that notes each argv and its standard input, and ends as told."""

    def __init__(self, **codes: int) -> None:
        self.codes = codes
        self.seen: list[tuple[tuple[str, ...], bytes | None]] = []

    def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True, **_options: object
    ) -> CommandResult:
        self.seen.append((tuple(argv), stdin))
        code = self.codes.get("test" if "--test-passphrase" in argv else argv[0], 0)
        if code and check:
            raise SystemFault("told to fail", reason=Reason.COMMAND_FAILED)
        return CommandResult(
            argv=tuple(argv),
            returncode=code,
            stdout=b"/dev/loop7\n" if "--show" in argv else b"",
            stderr=b"told to fail",
        )


def disk(folder: Path, data: bytes, *, size: int = SIZE + 4096) -> DiskCopy:
    source, target = folder / "disk.img", folder / "copy"
    source.write_bytes(data.ljust(size, b"\0"))
    target.mkdir()
    return copy_header(source, target)


def test_header_and_slots_are_copied_and_no_more(tmp_path: Path) -> None:
    copy = disk(tmp_path, vector(THEIRS))
    assert copy.whole
    assert copy.path.stat().st_size == SIZE
    assert copy.path.read_bytes() == copy.source.read_bytes()[:SIZE]


@pytest.mark.parametrize("name", [THEIRS, "constellation-plain", "state-disk"])
def test_a_disk_is_judged_by_the_kind_that_its_token_names(name: str, tmp_path: Path) -> None:
    assert judge_copy(disk(tmp_path, vector(name), size=0)).initialised


def test_a_disk_of_neither_kind_is_refused(tmp_path: Path) -> None:
    assert code_of(lambda: judge_copy(disk(tmp_path, vector("default"), size=0))) == "LUKS_HEADER_FOREIGN: sectors of"


def test_the_key_goes_over_standard_input(tmp_path: Path) -> None:
    runner = Noting()
    require_key(runner, disk(tmp_path, vector(THEIRS)), KEY)
    ((argv, stdin),) = runner.seen
    assert stdin == KEY.reveal()
    assert not any("a key that" in word for word in argv)
    assert argv[-1].endswith("/copy/header")


def test_a_key_that_opens_nothing_is_told(tmp_path: Path) -> None:
    copy = disk(tmp_path, vector(THEIRS))
    assert code_of(lambda: require_key(Noting(test=2), copy, KEY)) == "DISK_KEY_WRONG"
    assert code_of(lambda: require_key(Noting(test=1), copy, KEY)) == "COMMAND_FAILED"


def test_a_copy_without_slots_is_not_tried(tmp_path: Path) -> None:
    runner = Noting()
    copy = disk(tmp_path, vector(THEIRS), size=0)
    assert code_of(lambda: require_key(runner, copy, KEY)) == "LUKS_DAMAGED: bytes of"
    assert runner.seen == []


def test_a_disk_is_opened_by_the_header_that_was_judged_and_read_only(tmp_path: Path) -> None:
    runner = Noting()
    copy = disk(tmp_path, vector(THEIRS))
    mounted = mount_disk(runner, copy, KEY, place=tmp_path)
    opened, mount = runner.seen[1][0], runner.seen[2][0]
    assert opened[opened.index("--header") + 1] == str(copy.path)
    assert "--readonly" in opened
    assert mount[:5] == ("mount", "-t", "ext4", "-o", "ro,noload,nodev,nosuid,noexec")
    unmount_disk(runner, place=tmp_path, name=mounted.name)
    assert [argv[0] for argv, _stdin in runner.seen[3:]] == ["umount", "cryptsetup"]


def test_a_partition_is_opened_through_a_loop_device_that_nobody_must_remember(tmp_path: Path) -> None:
    runner = Noting()
    start = 1 << 20
    source, target = tmp_path / "disk.img", tmp_path / "copy"
    source.write_bytes(bytes(start) + vector(THEIRS).ljust(SIZE + 4096, b"\0"))
    target.mkdir()
    copy = copy_header(source, target, place=Partition(number=2, start=start, size=SIZE + 4096))
    assert copy.path.read_bytes() == source.read_bytes()[start : start + SIZE]
    mount_disk(runner, copy, KEY, place=tmp_path)
    words = [argv for argv, _stdin in runner.seen]
    assert [argv[0] for argv in words] == ["cryptsetup", "losetup", "cryptsetup", "losetup", "mount"]
    assert "--read-only" in words[1]
    assert words[1][words[1].index("--offset") + 1] == str(start)
    assert words[2][-2] == "/dev/loop7"
    assert words[3] == ("losetup", "--detach", "/dev/loop7")


def test_nothing_is_opened_with_a_hostile_header_or_a_wrong_key(tmp_path: Path) -> None:
    runner = Noting(test=2)
    copy = disk(tmp_path, vector(THEIRS))
    assert code_of(lambda: mount_disk(runner, copy, KEY, place=tmp_path)) == "DISK_KEY_WRONG"
    assert len(runner.seen) == 1
    null = with_json(vector(THEIRS), lambda one: one["segments"]["0"].update(encryption="cipher_null-ecb"))
    (tmp_path / "other").mkdir()
    hostile, runner = disk(tmp_path / "other", null), Noting()
    assert code_of(lambda: mount_disk(runner, hostile, KEY, place=tmp_path)) == "LUKS_HEADER_FOREIGN: the cipher"
    assert runner.seen == []


def test_what_cannot_be_mounted_does_not_stay_open(tmp_path: Path) -> None:
    runner = Noting(mount=32)
    assert code_of(lambda: mount_disk(runner, disk(tmp_path, vector(THEIRS)), KEY, place=tmp_path)) == "COMMAND_FAILED"
    assert runner.seen[-1][0][:2] == ("cryptsetup", "close")


def test_a_disk_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert code_of(lambda: copy_header(tmp_path / "none", tmp_path)) == "FILE_UNUSABLE"
