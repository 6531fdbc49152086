# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""join.IssueJoinTicketRequest."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.release import JoinRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class


def seeds() -> list[bytes]:
    made = message_class("join.IssueJoinTicketRequest")(
        disk_uuid="x", certificate_request=b"c", event_logs=b"\x0a\x01f"
    )
    return [made.SerializeToString()]


def one_input(data: bytes) -> None:
    EventLogs.parse(JoinRequest.parse(data).event_logs)
