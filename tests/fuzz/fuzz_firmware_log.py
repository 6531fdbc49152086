# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firmware's event log (TCG PC client profile), parsed and put into words."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import describe
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import parse_firmware_log
from ansible_collections.attested.kubernetes.tests.support import boots

MAX_BYTES = 1 << 16


def seeds() -> list[bytes]:
    return [boots.load(name).firmware for name in ("deb13-base", "deb13-grub-secureboot", "deb12-base")]


def one_input(data: bytes) -> None:
    describe(parse_firmware_log(data), ())
