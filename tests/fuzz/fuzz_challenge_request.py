# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""attested.v1.ChallengeRequest, up to the challenge."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    ChallengeRequest,
    new_challenge,
)
from ansible_collections.attested.kubernetes.tests.support.exchange import NOW, SELECTION, Exchange


def seeds() -> list[bytes]:
    return [Exchange().request().to_bytes()]


def one_input(data: bytes) -> None:
    new_challenge(ChallengeRequest.parse(data), selection=SELECTION, random=SystemRandom(), now=NOW)
