# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A key's file: on tmpfs, its owner's alone, of the right size."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.process import harden, read_key
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of


@pytest.fixture
def mounts(tmp_path):
    path = tmp_path / "mounts"
    path.write_text("none / tmpfs rw 0 0\n")
    return path


def _key(folder, *, content=b"k" * 32, mode=0o600):
    path = folder / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_key_is_read(tmp_path, mounts):
    key = read_key(_key(tmp_path), mounts=mounts)
    assert key.reveal() == b"k" * 32
    assert repr(key) == "DiskKey()"


@pytest.mark.parametrize(
    ("content", "mode"),
    [
        pytest.param(b"k" * 32, 0o640, id="others may read it"),
        pytest.param(b"k" * 31, 0o600, id="too short"),
        pytest.param(b"k" * 33, 0o600, id="too long"),
        pytest.param(b"", 0o600, id="empty"),
    ],
)
def test_another_file_is_refused(tmp_path, mounts, content, mode):
    path = _key(tmp_path, content=content, mode=mode)
    assert code_of(lambda: read_key(path, mounts=mounts)) == "STATE_DISK_KEY"


def test_a_file_that_is_not_there_or_a_directory_is_refused(tmp_path, mounts):
    assert code_of(lambda: read_key(tmp_path / "absent", mounts=mounts)) == "STATE_DISK_KEY"
    assert code_of(lambda: read_key(tmp_path, mounts=mounts)) == "STATE_DISK_KEY"


def test_a_key_on_a_disk_is_refused(tmp_path, mounts):
    mounts.write_text("none / ext4 rw 0 0\n")
    assert code_of(lambda: read_key(_key(tmp_path), mounts=mounts)) == "NOT_TMPFS"


class Unwilling:
    """A kernel that locks no memory of this process."""

    def mlockall(self, flags):
        del flags
        return -1


def test_a_process_that_may_be_swapped_out_touches_no_key(tmp_path):
    swaps = tmp_path / "swaps"
    swaps.write_text("Filename Type Size\n")
    assert code_of(lambda: harden(libc=Unwilling(), swaps=swaps)) == "STATE_DISK_UNGUARDED"
    swaps.write_text("Filename Type Size\n/dev/sda2 partition 1\n")
    assert code_of(lambda: harden(libc=Unwilling(), swaps=swaps)) == "SWAP_ACTIVE"
