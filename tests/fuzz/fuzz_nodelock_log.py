# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node lock's log, and the reading of its register."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import read_lock
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.evidence.test_verify import lock_log

BOOT = boots.load("deb13-base")
FIRMWARE, USERSPACE = parse_firmware_log(BOOT.firmware), parse_records(BOOT.userspace, "log")


def seeds() -> list[bytes]:
    return [lock_log(), lock_log(b"o" * 32), lock_log() * 2]


def one_input(data: bytes) -> None:
    own = parse_records(data, "node lock log")
    read_lock(BOOT.pcrs[15], register=15, firmware=FIRMWARE, userspace=USERSPACE, nodelock=own)
