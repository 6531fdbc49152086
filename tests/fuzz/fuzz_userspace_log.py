# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd's log of measurements (JSON-seq), parsed and put into words."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import describe
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.tests.support import boots

FIRMWARE = parse_firmware_log(boots.load("deb13-base").firmware)
MAX_BYTES = 1 << 14


def seeds() -> list[bytes]:
    return [boots.load("deb13-base").userspace[:4096], boots.load("deb12-base").userspace[:4096]]


def one_input(data: bytes) -> None:
    describe(FIRMWARE, parse_records(data, "userspace log"))
