# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constellation's state file, which the rescue kit reads."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.values import parse_state
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.rescue.test_values import STATE


def seeds() -> list[bytes]:
    return [STATE.encode()]


def one_input(data: bytes) -> None:
    values = parse_state(data)
    assert len(values.measurement_salt) == 32
    assert len(values.cluster_id) in {0, 32}
