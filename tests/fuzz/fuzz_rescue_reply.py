# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a stranger answers to the rescue kit in place of a node: a rejoin ticket, or the answer to a verification."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.node import (
    parse_rejoin_reply,
    parse_verify_reply,
)
from ansible_collections.attested.kubernetes.tests.support.constellation_node import ticket


def seeds() -> list[bytes]:
    return [ticket(bytes(32), bytes(range(32))), b"\x0a\x02{}"]


def one_input(data: bytes) -> None:
    assert isinstance(parse_verify_reply(data), bytes)
    secrets = parse_rejoin_reply(data)
    assert (len(secrets.disk_key), len(secrets.measurement_secret)) == (32, 32)
