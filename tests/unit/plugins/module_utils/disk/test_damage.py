# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which words of the kernel's log are about the state disk."""

from __future__ import annotations

import os

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.kernel_log import (
    MAX_SECTORS,
    Damage,
    KmsgLog,
    damage_in,
    damage_now,
    mapped_devices,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

OURS = frozenset({"dm-0", "dm-1"})
GOOD = b"3,110,15260000,-;device-mapper: crypt: dm-0: INTEGRITY AEAD ERROR, sector 16440\n"


class Log:
    """What the kernel still has, given by a test."""

    def __init__(self, *records):
        self._records = records

    def records(self):
        return iter(self._records)


@pytest.fixture
def block(tmp_path):
    """The mappings of a machine: the state disk's two, another one, and a disk."""
    for device, name in {"dm-0": "attested-state_dif", "dm-1": "attested-state", "dm-2": "other"}.items():
        (tmp_path / device / "dm").mkdir(parents=True)
        (tmp_path / device / "dm/name").write_text(f"{name}\n")
    (tmp_path / "sda").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(GOOD, id="as most kernels say it"),
        pytest.param(GOOD.replace(b";", b";trusted_key: "), id="with the prefix of another file"),
        pytest.param(GOOD.replace(b"dm-0", b"dm-1"), id="of the upper mapping"),
        pytest.param(GOOD + b" SUBSYSTEM=block\n DEVICE=b253:0\n", id="with a dictionary behind it"),
        pytest.param(GOOD.replace(b"-;", b"c,caller=T1;"), id="with further fields"),
        pytest.param(GOOD.replace(b"3,", b"4,"), id="less bad"),
    ],
)
def test_a_sector_that_the_kernel_refused_is_found(record):
    assert damage_in([record], OURS).sectors == (16440,)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(GOOD.replace(b"dm-0", b"dm-2"), id="of another mapping"),
        pytest.param(GOOD.replace(b"dm-0", b"dm-01"), id="of no mapping"),
        pytest.param(GOOD.replace(b"3,", b"11,"), id="written by a process"),
        pytest.param(GOOD.replace(b"16440", b"16440, said somebody"), id="followed by something else"),
        pytest.param(b"3,1,1,-;EXT4-fs error (device dm-1): something\n DM=" + GOOD[18:], id="in the dictionary"),
        pytest.param(GOOD[3:], id="without a priority"),
        pytest.param(GOOD.replace(b";", b" "), id="without a text"),
        pytest.param(b"", id="empty"),
        pytest.param(b"3,1,1,-;kcryptd: 12 callbacks suppressed\n", id="about other lines"),
    ],
)
def test_nothing_else_is_damage(record):
    assert not damage_in([record], OURS)


def test_a_sector_counts_once_and_the_lowest_are_kept():
    many = [GOOD.replace(b"16440", b"%d" % number) for number in (9, 3, 9, *range(100, 100 + MAX_SECTORS))]
    found = damage_in(many, OURS)
    assert (found.sectors[:3], len(found.sectors)) == ((3, 9, 100), MAX_SECTORS)


@pytest.mark.parametrize(
    ("sectors", "text"),
    [
        pytest.param((7,), "at least 1 sector", id="one"),
        pytest.param((7, 15), "at least 2 sectors", id="two"),
    ],
)
def test_the_number_is_a_least_one(sectors, text):
    assert str(Damage(sectors)) == text


def test_the_numbers_of_the_mappings_are_looked_up(block):
    assert mapped_devices(block) == {"dm-0", "dm-1"}
    (block / "dm-0/dm/name").unlink()
    assert mapped_devices(block) == {"dm-1"}


def test_a_machine_without_the_disk_has_no_damage(block):
    for device in ("dm-0", "dm-1"):
        (block / device / "dm/name").write_text("other\n")
    assert not damage_now(Log(GOOD), block)


def test_what_the_log_says_of_the_mapping_is_damage(block):
    assert damage_now(Log(b"6,1,1,-;hello\n", GOOD), block) == Damage((16440,))


def test_the_log_is_read_record_by_record_until_there_is_no_more(tmp_path):
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    with_writer = os.open(path, os.O_RDWR)
    try:
        os.write(with_writer, GOOD)
        assert list(KmsgLog(path).records()) == [GOOD]
    finally:
        os.close(with_writer)


def test_records_that_were_written_over_are_left_out(tmp_path, monkeypatch):
    path = tmp_path / "kmsg"
    path.write_bytes(b"")
    answers = [BrokenPipeError(), GOOD, BlockingIOError()]

    def read(_descriptor, _count):
        found = answers.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(os, "read", read)
    assert list(KmsgLog(path).records()) == [GOOD]


def test_a_log_that_cannot_be_read_is_refused(tmp_path):
    assert code_of(lambda: list(KmsgLog(tmp_path / "none").records())) == "FILE_UNUSABLE"
