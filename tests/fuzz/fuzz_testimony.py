# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""attested.v1.Testimony, and its judgement."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import judge
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_exchange import Testimony
from ansible_collections.attested.kubernetes.tests.support.verification import SoftNode, question
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services.test_judge import received

NODE = SoftNode()
ASKED = question(NODE.policy())
HEARD = received(NODE, asked=ASKED)
MAX_BYTES = 1 << 17


def seeds() -> list[bytes]:
    said = HEARD.testimony
    return [said.to_bytes(), replace(said, event_logs=said.event_logs[:200], exporter=b"").to_bytes()]


def one_input(data: bytes) -> None:
    found = judge(replace(HEARD, testimony=Testimony.parse(data)), ASKED, node="w-1")
    assert found.identity.node_name == "w-1"
