# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of a Constellation cluster, which says what its nodes boot."""

from __future__ import annotations

import json

from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.node import parse_measurements
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.rescue.test_measurements import ENTRIES


def seeds() -> list[bytes]:
    return [
        json.dumps(ENTRIES).encode(),
        json.dumps({"attestation": {"qemuVTPM": {"measurements": ENTRIES}}}).encode(),
        f'4:\n  expected: "{"0" * 64}"\n'.encode(),
    ]


def one_input(data: bytes) -> None:
    found = parse_measurements(data)
    assert set(found.expected) - found.warn_only, "something is enforced"
    assert all(0 <= index < 24 and len(value) == 32 for index, value in found.expected.items())
