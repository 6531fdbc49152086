# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from datetime import UTC

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import require_no_swap, require_tmpfs
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom, release
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault

MOUNTS = r"""/dev/vda1 / ext4 rw 0 0
tmpfs /run tmpfs rw 0 0
/dev/vdb1 /run/disk ext4 rw 0 0
tmpfs /run/with\040space tmpfs rw 0 0
ramfs /secret ramfs rw 0 0
"""


@pytest.fixture
def mounts(tmp_path):
    (tmp_path / "mounts").write_text(MOUNTS, encoding="utf-8")
    return tmp_path / "mounts"


@pytest.mark.parametrize(
    ("path", "good"),
    [
        pytest.param("/run/attested", True, id="below a memory file system"),
        pytest.param("/run", True, id="a mount point itself"),
        pytest.param("/secret/x", True, id="ramfs as well"),
        pytest.param("/run/with space/x", True, id="a mount point with a space"),
        pytest.param("/run/disk/x", False, id="a disk mounted inside of it"),
        pytest.param("/running", False, id="a name that only begins alike"),
        pytest.param("/var/lib", False, id="the root disk"),
    ],
)
def test_where_a_secret_may_lie(mounts, path, good):
    if good:
        assert str(require_tmpfs(path, mounts=mounts)) == path
        return
    with pytest.raises(SystemFault, match="it is on ext4") as caught:
        require_tmpfs(path, mounts=mounts)
    assert caught.value.code == "NOT_TMPFS"


def test_a_later_mount_over_the_same_point_wins(mounts):
    mounts.write_text(f"{MOUNTS}/dev/vdc1 /run ext4 rw 0 0\n", encoding="utf-8")
    with pytest.raises(SystemFault) as caught:
        require_tmpfs("/run/attested", mounts=mounts)
    assert caught.value.code == "NOT_TMPFS"


def test_swap_is_named(tmp_path):
    table = tmp_path / "swaps"
    table.write_text("Filename\tType\n/dev/sda3 partition 1 0 -2\n/swapfile file 1 0 -3\n", encoding="utf-8")
    with pytest.raises(SystemFault, match="/dev/sda3, /swapfile") as caught:
        require_no_swap(swaps=table)
    assert caught.value.code == "SWAP_ACTIVE"


def test_no_swap_is_fine(tmp_path):
    (tmp_path / "swaps").write_text("Filename\tType\n", encoding="utf-8")
    require_no_swap(swaps=tmp_path / "swaps")


def test_the_clock_is_utc_and_never_goes_back():
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0)
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() >= before


def test_random_bytes_have_their_length_and_differ():
    random = SystemRandom()
    assert len(random.token(32)) == 32
    assert random.token(32) != random.token(32)


def test_the_release_is_a_word():
    assert release()
