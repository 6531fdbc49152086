# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S12: last month's policy is shown again: it was signed, and it is of the past.

Two replicas, records on disk and a restored etcd: `tests/api_bed/test_policy.py`.
"""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.record import adopt, follow
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.policy import (
    test_cluster as signed_policies,
)

THREAT = Threat(
    id="S12",
    title="Policy downgrade",
    case="older manifests and policies accepted",
    bed="bytes",
    stops=(("policy/record.py", "POLICY_ROLLED_BACK"),),
)


@pytest.mark.parametrize("generation", [2, 1])
def test_an_older_generation(generation: int) -> None:
    """It verifies, as it did last month; the record has seen a newer one."""
    current, older = signed_policies.policy(3), signed_policies.policy(generation)
    assert signed_policies.verified(signed_policies.signed(older)) == older
    assert follow(signed_policies.seen(), current) == signed_policies.seen()
    assert code_of(lambda: follow(signed_policies.seen(), older)) == "POLICY_ROLLED_BACK"
    assert code_of(lambda: adopt([signed_policies.seen()], older)) == "POLICY_ROLLED_BACK"
