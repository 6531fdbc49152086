# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import stat

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import (
    make_directory,
    place_link,
    read_bytes,
    remove,
    write_atomic,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault


@pytest.fixture
def target(tmp_path):
    return tmp_path / "ticket"


def test_a_new_file_has_its_mode_and_content(target):
    assert write_atomic(target, b"one", mode=0o640) is True
    assert target.read_bytes() == b"one"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_the_default_mode_is_for_the_owner_alone(target):
    write_atomic(target, b"one")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_the_same_again_changes_nothing(target):
    write_atomic(target, b"one")
    before = target.stat().st_ino
    assert write_atomic(target, b"one") is False
    assert target.stat().st_ino == before


@pytest.mark.parametrize(
    ("data", "mode"),
    [
        pytest.param(b"two", 0o600, id="other content"),
        pytest.param(b"one", 0o644, id="other mode"),
    ],
)
def test_a_difference_is_written(target, data, mode):
    write_atomic(target, b"one")
    assert write_atomic(target, data, mode=mode) is True
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (data, mode)


def test_the_owner_counts(target):
    write_atomic(target, b"one")
    assert write_atomic(target, b"one", owner=(os.getuid(), os.getgid())) is False


def test_a_link_is_replaced_and_what_it_names_is_not_touched(target, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"one")
    target.symlink_to(other)
    assert write_atomic(target, b"two") is True
    assert not target.is_symlink()
    assert other.read_bytes() == b"one"


def test_a_failed_write_leaves_nothing_behind(target, tmp_path):
    target.mkdir()
    with pytest.raises(SystemFault) as caught:
        write_atomic(target, b"one")
    assert caught.value.code == "FILE_UNUSABLE"
    assert list(tmp_path.iterdir()) == [target]


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(SystemFault, match="cannot write .*No such file") as caught:
        write_atomic(tmp_path / "absent" / "file", b"")
    assert caught.value.code == "FILE_UNUSABLE"


@pytest.mark.parametrize(
    ("size", "good"),
    [pytest.param(10, True, id="at the limit"), pytest.param(11, False, id="one byte over the limit")],
)
def test_reading_is_bounded(target, size, good):
    target.write_bytes(b"x" * size)
    if good:
        assert read_bytes(target, limit=10) == b"x" * size
        return
    with pytest.raises(SystemFault, match="at most 10 bytes") as caught:
        read_bytes(target, limit=10)
    assert caught.value.code == "FILE_UNUSABLE"


def test_an_absent_file_is_named(target):
    with pytest.raises(SystemFault, match="cannot read .*ticket") as caught:
        read_bytes(target)
    assert caught.value.code == "FILE_UNUSABLE"


def test_removing_says_whether_there_was_something(target):
    target.write_bytes(b"")
    assert remove(target) is True
    assert remove(target) is False


def test_a_directory_is_not_removed_as_a_file(target):
    target.mkdir()
    with pytest.raises(SystemFault) as caught:
        remove(target)
    assert caught.value.code == "FILE_UNUSABLE"


def test_a_directory_is_made_once_with_its_mode(tmp_path):
    place = tmp_path / "a" / "b"
    make_directory(place, mode=0o711)
    make_directory(place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o711


def test_a_directory_that_cannot_be_is_named(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(SystemFault, match="cannot make the directory .*a/b: Not a directory") as caught:
        make_directory(tmp_path / "a" / "b")
    assert caught.value.code == "FILE_UNUSABLE"


def test_a_link_is_placed_and_replaced(tmp_path):
    link = tmp_path / "current"
    for name in ("one", "two"):
        place_link(link, name)
        assert str(link.readlink()) == name
    assert list(tmp_path.iterdir()) == [link]


def test_a_link_in_the_place_of_a_directory_is_refused(tmp_path):
    link = tmp_path / "current"
    link.mkdir()
    with pytest.raises(SystemFault, match="cannot make the link") as caught:
        place_link(link, "one")
    assert caught.value.code == "FILE_UNUSABLE"
