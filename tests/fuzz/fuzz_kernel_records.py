# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of the kernel's log, in which any root process can write as well."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.disk.kernel_log import damage_in

NEVER_REFUSES = True  # the log is full of what is not for us: it is passed over
DEVICES = frozenset({"dm-0", "dm-1"})
REFUSED = b"3,1012,9411003,-;device-mapper: crypt: dm-0: INTEGRITY AEAD ERROR, sector 16440"
BY_A_PROCESS = b"11" + REFUSED[1:]


def seeds() -> list[bytes]:
    return [REFUSED, BY_A_PROCESS, REFUSED.replace(b"dm-0", b"dm-9"), b"6,1,0,-;nothing\n SUBSYSTEM=block"]


def one_input(data: bytes) -> None:
    damage = damage_in(data.split(b"\0"), DEVICES)
    again = damage_in([*data.split(b"\0"), *data.split(b"\0")], DEVICES)
    assert again == damage, "a sector counts once, however often it is read"
    assert bool(damage) <= (b"INTEGRITY AEAD ERROR" in data)
