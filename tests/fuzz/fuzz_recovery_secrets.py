# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the box of a recovery held, as the process that tries keys reads it."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_messages import RecoverySecrets
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services.test_recovery_messages import (
    SECRETS,
)


def seeds() -> list[bytes]:
    return [SECRETS.to_bytes()]


def one_input(data: bytes) -> None:
    secrets = RecoverySecrets.from_bytes(data)
    assert RecoverySecrets.from_bytes(secrets.to_bytes()) == secrets
    assert (len(secrets.disk_key), len(secrets.disk.uuid)) == (32, 36)
