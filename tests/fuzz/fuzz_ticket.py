# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer of a join service, as a node opens it."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import parse_ticket
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services.test_received_ticket import Node

NODE = Node()
GOOD = NODE.issued()


def seeds() -> list[bytes]:
    return [b"\x00" + NODE.answer(GOOD), b"\x01" + GOOD.ticket]


def one_input(data: bytes) -> None:
    if data[:1] == b"\x00":
        NODE.open(data[1:])
    else:
        parse_ticket(data[1:])
