# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""attested.v1.EventLogs."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs


def seeds() -> list[bytes]:
    return [EventLogs(firmware=b"f" * 40, userspace=b"u", nodelock=b"n", command_line=b"quiet").to_bytes()]


def one_input(data: bytes) -> None:
    EventLogs.parse(data).digest()
