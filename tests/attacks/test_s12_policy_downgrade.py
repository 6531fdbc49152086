# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S12: last month's policy is shown again: it was signed, and it is of the past.

Two replicas, records on disk and a restored etcd: `tests/api_bed/test_policy.py`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import (
    NamedDigest,
    PolicyException,
    profile_sha256,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import AllowedValue, MeasurementProfile
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.record import adopt, follow
from ansible_collections.attested.kubernetes.tests.support.exchange import learned
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import NOW, Bed
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.policy import (
    test_cluster as signed_policies,
)

THREAT = Threat(
    id="S12",
    title="Policy downgrade",
    case="older manifests and policies accepted",
    bed="bytes",
    stops=(
        ("policy/record.py", "POLICY_ROLLED_BACK"),
        ("policy/decision.py", "PCR_MISMATCH"),
    ),
)


@pytest.mark.parametrize("generation", [2, 1])
def test_an_older_generation(generation: int) -> None:
    """It verifies, as it did last month; the record has seen a newer one."""
    current, older = signed_policies.policy(3), signed_policies.policy(generation)
    assert signed_policies.verified(signed_policies.signed(older)) == older
    assert follow(signed_policies.seen(), current) == signed_policies.seen()
    assert code_of(lambda: follow(signed_policies.seen(), older)) == "POLICY_ROLLED_BACK"
    assert code_of(lambda: adopt([signed_policies.seen()], older)) == "POLICY_ROLLED_BACK"


def test_an_exception_for_one_profile_is_stretched_to_another() -> None:
    """Break-glass lets one old profile count for one machine; who writes profiles adds one of the boot that it has."""
    bed = Bed()
    machine, own = bed.tpm.ek.public.spki_sha256(), learned(bed.boot)
    values = {pcr: (AllowedValue(b"o" * 32, "an older boot"),) for pcr in own.registers}
    old = replace(own, name="old", registers=values)
    bed.gateway.apply(render_profile(old))

    def release_with(named: MeasurementProfile) -> object:
        digest = NamedDigest(named.name, profile_sha256(named))
        broken = PolicyException(profile=digest, machines=(machine,), expires=NOW + timedelta(hours=1), why="firmware")
        bed.gateway.apply(bed.site.sign([render_identity(bed.identity)], exceptions=[broken]))
        return bed.release()

    assert release_with(own)
    assert code_of(lambda: release_with(old)) == "PCR_MISMATCH"
