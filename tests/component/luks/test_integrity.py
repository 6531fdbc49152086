# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A state disk on a real dm-crypt and dm-integrity (User Mode Linux): its header, and one changed byte.

Plain commands make and open it: nothing of ours formats or opens a state disk yet.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_check import STATE_DISK, verify_header
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_header import AREA_BYTES, read_header
from ansible_collections.attested.kubernetes.tests.support.uml import missing_packages, run_in_uml

if TYPE_CHECKING:
    from pathlib import Path

UUID = "71111111-2222-4333-8444-555555555555"
SCRIPT = f"""
printf 'a key of exactly thirty-two byte' > /run/key
cryptsetup luksFormat -q --type luks2 --label attested-state --cipher aes-xts-plain64 --key-size 512 \\
  --sector-size 4096 --integrity hmac-sha256 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --uuid {UUID} \\
  --key-file /run/key /dev/ubda
echo '{{"type":"attested-state-disk","keyslots":[],"version":1,"initialised":false}}' |
  cryptsetup token import --token-id 0 --json-file - /dev/ubda
cryptsetup open --key-file /run/key /dev/ubda state
yes 'what was written' | dd of=/dev/mapper/state bs=4096 count=64 iflag=fullblock oflag=direct status=none
cryptsetup close state

# where sector 63 lies: what differs after it is written anew, and behind the journal and the tags
cat /dev/ubda > /run/before
cryptsetup open --key-file /run/key /dev/ubda state
yes 'what was changed' | dd of=/dev/mapper/state bs=4096 seek=63 count=1 iflag=fullblock oflag=direct status=none
cryptsetup close state
at=$(cmp -l /run/before /dev/ubda | tail -n 1 | awk '{{ print $1 - 1 }}')
dd if=/run/before of=/dev/ubda bs=1 skip=$at seek=$at count=1 conv=notrunc status=none
sync

cryptsetup open --key-file /run/key /dev/ubda state
dmsetup table > table
dd if=/dev/mapper/state bs=4096 count=63 iflag=direct status=none | sort -u > neighbours
dd if=/dev/mapper/state bs=4096 skip=63 count=1 iflag=direct of=changed 2> direct && exit 9
dd if=/dev/mapper/state bs=4096 skip=63 count=1 of=changed 2> buffered && exit 9
cryptsetup close state
"""


def test_a_changed_byte_is_an_error_and_its_neighbours_are_not(tmp_path: Path) -> None:
    if missing := missing_packages():
        pytest.skip(f"no kernel with dm-integrity here: {', '.join(missing)} not installed")
    disk = tmp_path / "disk.img"
    with disk.open("wb") as stream:
        stream.truncate(20 << 20)
    run_in_uml(SCRIPT, folder=tmp_path, disks=[disk])
    with disk.open("rb") as stream:
        assert not verify_header(read_header(stream.read(AREA_BYTES)), STATE_DISK, uuid=UUID).initialised
    assert "capi:authenc(hmac(sha256),xts(aes))-plain64" in (tmp_path / "table").read_text(encoding="utf-8")
    assert set((tmp_path / "neighbours").read_text(encoding="utf-8").split("\n")) <= {
        *("what was written"[-length:] for length in range(1, 17)),
        *("what was written"[:length] for length in range(17)),
    }
    assert os.strerror(errno.EIO) in (tmp_path / "buffered").read_text(encoding="utf-8")
    # who reads past the cache sees the kernel's own word for it, which is not EIO
    assert os.strerror(errno.EILSEQ) in (tmp_path / "direct").read_text(encoding="utf-8")
    assert (tmp_path / "changed").read_bytes() == b""
