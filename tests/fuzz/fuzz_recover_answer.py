# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a locked node answers, as an admin's terminal gets it."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_messages import RecoverAnswer


def seeds() -> list[bytes]:
    return [RecoverAnswer().to_bytes(), RecoverAnswer(code="RECOVERY_KEY_WRONG", message="m", hint="h").to_bytes()]


def one_input(data: bytes) -> None:
    said = RecoverAnswer.parse(data)
    assert all(one.isprintable() for one in said.code + said.message + said.hint)
    assert len(said.message) <= 2048
