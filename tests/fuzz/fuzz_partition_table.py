# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partition tables of disks and images that the rescue kit is given."""

from __future__ import annotations

import io

from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.disk import read_partitions
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.rescue.test_partitions import (
    gpt,
    mbr,
    mbr_sector,
)

_BYTES = 64 << 10


def seeds() -> list[bytes]:
    chain = mbr((0x83, 8, 8), (0x0F, 16, 64))
    chain[16 * 512 : 17 * 512] = mbr_sector((0x83, 2, 8), (0x05, 20, 20))
    chain[36 * 512 : 37 * 512] = mbr_sector((0x83, 3, 9))
    return [bytes(disk[:_BYTES]) for disk in (gpt((40, 47, "state")), gpt((40, 47, "state"), sector=4096), chain)]


def one_input(data: bytes) -> None:
    for partition in read_partitions(io.BytesIO(data)):
        assert partition.number > 0
        assert partition.start >= 0
        assert partition.size > 0
        assert partition.name.isprintable()
