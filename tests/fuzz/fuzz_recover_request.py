# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recovery request as a locked node reads it."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_messages import RecoverOrder
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services.test_recovery_messages import (
    ORDER,
)


def seeds() -> list[bytes]:
    return [ORDER.to_bytes()]


def one_input(data: bytes) -> None:
    order = RecoverOrder.parse(data)
    assert RecoverOrder.parse(order.to_bytes()) == order
