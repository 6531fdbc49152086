# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""attested.v1.Binding with the evidence in it, up to the verdict."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import BoundEvidence
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange

EXCHANGE = Exchange()
CHALLENGE, RECORD = EXCHANGE.challenged()
GIVEN = EXCHANGE.answered(CHALLENGE)


def seeds() -> list[bytes]:
    return [GIVEN.bound.to_bytes()]


def one_input(data: bytes) -> None:
    bound = BoundEvidence.parse(data)
    node = EXCHANGE.verified(GIVEN, RECORD, bound=bound)
    assert bound.evidence.quote == GIVEN.bound.evidence.quote, "other bytes were verified"
    assert node.machine.hpke_public == GIVEN.bound.hpke_public
