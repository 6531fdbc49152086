# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S28: evidence that is far too large, too deep, or unfolds: refused before it costs anything."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.manifest import parse_manifest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import (
    BoundEvidence,
    EventLogs,
    Evidence,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kubelet import check_kubelet_request
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.release import JoinRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import parse_node_config
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import frame_length
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

THREAT = Threat(
    id="S28",
    title="Oversized or unfolding evidence",
    case="GHSA-6xx7-m45w-76m2",
    bed="bytes",
    stops=(
        ("proto/messages.py", "MESSAGE_TOO_LARGE"),
        ("evidence/eventlog/tcg.py", "EVENT_LOG_TOO_LARGE"),
        ("evidence/eventlog/tcg.py", "EVENT_LOG_MALFORMED"),
        ("keyservice/kubelet.py step 1", "CSR_MALFORMED"),
        ("core/documents.py", "NODE_CONFIG_MALFORMED"),
        ("bundle/manifest.py", "BUNDLE_MALFORMED"),
    ),
)

CEILING = 8 << 20
LOG = boots.load("deb13-base").firmware
HUGE = b"\x00" * (64 << 20)
EVENT = (0).to_bytes(4, "little") + (5).to_bytes(4, "little") + bytes(4) + bytes(4)
DEEP = b"[" * 100_000
BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    f"{one}: &{one} [{','.join([f'*{before}'] * 9)}]\n".encode() for before, one in zip("abcde", "bcdef", strict=True)
)

CASES = [
    pytest.param(ChallengeRequest.parse, HUGE, "MESSAGE_TOO_LARGE", id="a challenge's request of 64 MiB"),
    pytest.param(BoundEvidence.parse, HUGE, "MESSAGE_TOO_LARGE", id="a binding of 64 MiB"),
    pytest.param(Evidence.parse, HUGE, "MESSAGE_TOO_LARGE", id="evidence of 64 MiB"),
    pytest.param(JoinRequest.parse, HUGE, "MESSAGE_TOO_LARGE", id="a request of 64 MiB"),
    pytest.param(EventLogs.parse, HUGE, "MESSAGE_TOO_LARGE", id="event logs of 64 MiB"),
    pytest.param(frame_length, b"\x40\x00\x00\x00", "MESSAGE_TOO_LARGE", id="a frame that says 1 GiB"),
    pytest.param(parse_firmware_log, LOG + EVENT * 1_000_000, "EVENT_LOG_TOO_LARGE", id="a million events"),
    pytest.param(parse_firmware_log, LOG[:2000] + b"\xff" * 40, "EVENT_LOG_MALFORMED", id="an event that says 4 GiB"),
    pytest.param(lambda data: parse_records(data, "log"), b"\x1e" + DEEP, "EVENT_LOG_MALFORMED", id="deep JSON"),
    pytest.param(
        lambda data: parse_records(data, "log"), b"\x1e{}\n" * 1_000_000, "EVENT_LOG_TOO_LARGE", id="a million records"
    ),
    pytest.param(
        lambda data: check_kubelet_request(data, node_name="w-1"), HUGE, "CSR_MALFORMED", id="a CSR of 64 MiB"
    ),
    pytest.param(parse_node_config, BOMB, "NODE_CONFIG_MALFORMED", id="aliases that unfold"),
    pytest.param(parse_node_config, DEEP, "NODE_CONFIG_MALFORMED", id="deep YAML"),
    pytest.param(parse_manifest, DEEP, "BUNDLE_MALFORMED", id="a deep manifest"),
]


@pytest.mark.parametrize(("parse", "data", "code"), CASES)
def test_refused_within_a_ceiling(parse: Callable[[bytes], object], data: bytes, code: str) -> None:
    """The input itself is there already; what the parser adds is counted."""
    tracemalloc.start()
    try:
        assert code_of(lambda: parse(data)) == code
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < CEILING


def test_good_ones_of_their_size_are_read() -> None:
    assert parse_firmware_log(LOG).events
    assert frame_length(b"\x00\x0f\xff\xff") == (1 << 20) - 1
    assert code_of(lambda: parse_manifest(json.dumps({}).encode())) == "BUNDLE_MALFORMED"
