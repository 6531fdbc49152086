# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""attested.v1.Evidence, and its quote."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import Evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import verify_evidence
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange

EXCHANGE = Exchange()
GIVEN = EXCHANGE.answered(EXCHANGE.challenged()[0])


def seeds() -> list[bytes]:
    return [GIVEN.bound.evidence.to_bytes()]


def one_input(data: bytes) -> None:
    verify_evidence(Evidence.parse(data), qualifying_data=GIVEN.binding)
