# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""attested.v1.ChallengeResponse, as a node takes it."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import Challenge
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange


def seeds() -> list[bytes]:
    return [Exchange().challenged()[0].to_bytes()]


def one_input(data: bytes) -> None:
    Challenge.parse(data)
