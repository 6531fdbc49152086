# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A revocation that the site takes back: signed, for whoever follows, and not in advance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import ClusterPolicy, plan_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.record import (
    Seen,
    adopt,
    follow,
    missing_revocations,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.signature import sign_policy, verify_policy
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY, PRIVATE_KEY
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

CLUSTER = b"c" * 32
EK, OTHER = "a1" * 32, "b2" * 32


def policy(generation: int, **changes: Any) -> ClusterPolicy:
    parts = {"profiles": (), "identities": (), "revoked": (), **changes}
    return plan_policy(generation=generation, **parts)


def back(generation: int, **changes: Any) -> ClusterPolicy:
    return policy(generation, reinstated=[EK], **changes)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(Seen.of(policy(1, revoked=[EK, OTHER])), id="the policy before signed it"),
        pytest.param(Seen.of(policy(1)).with_revoked([EK, OTHER]), id="it was noted, and nobody signed it"),
    ],
)
@pytest.mark.parametrize("generation", [2, 5])
def test_whoever_follows_forgets_that_revocation_and_no_other(seen: Seen, generation: int) -> None:
    found = back(generation, revoked=[OTHER])
    assert follow(seen, found).revoked == {OTHER}
    assert missing_revocations(seen, found) == frozenset()
    assert adopt([seen], found).revoked == {OTHER}


def test_it_is_not_noted_again_from_an_object_that_the_site_has_not_changed_yet() -> None:
    seen = follow(Seen.of(policy(1, revoked=[EK])), back(2))
    assert seen.with_revoked([EK]) == seen
    assert seen.with_revoked([OTHER]).revoked == {OTHER}


def test_a_revocation_after_it_is_signed_as_ever() -> None:
    seen = follow(Seen.of(back(2)), policy(3, revoked=[EK]))
    assert seen.revoked == {EK}
    assert code_of(lambda: follow(seen, back(2))) == "POLICY_ROLLED_BACK"


def test_the_same_generation_takes_nothing_back() -> None:
    assert code_of(lambda: follow(Seen.of(policy(2, revoked=[EK])), back(2))) == "POLICY_ROLLED_BACK"


def test_what_is_revoked_is_not_reinstated() -> None:
    assert back(2, revoked=[EK]).reinstated == ()


def test_it_is_signed_with_the_rest() -> None:
    signed = sign_policy(back(2), private_key=PRIVATE_KEY, cluster_id=CLUSTER)
    assert signed["spec"]["reinstated"] == [EK]
    assert verify_policy(signed, public_key=POLICY_KEY, cluster_id=CLUSTER) == back(2)


@pytest.mark.parametrize("reinstated", [[], [OTHER], [EK, OTHER]])
def test_another_list_than_the_signed_one_is_refused(reinstated: list[str]) -> None:
    signed = sign_policy(back(2), private_key=PRIVATE_KEY, cluster_id=CLUSTER)
    forged = {**signed, "spec": {**signed["spec"], "reinstated": reinstated}}
    assert code_of(lambda: verify_policy(forged, public_key=POLICY_KEY, cluster_id=CLUSTER)) == "POLICY_SIGNATURE"


def test_both_words_on_one_machine_are_none() -> None:
    both = replace(back(2), revoked=(EK,))
    signed = sign_policy(both, private_key=PRIVATE_KEY, cluster_id=CLUSTER)
    assert code_of(lambda: verify_policy(signed, public_key=POLICY_KEY, cluster_id=CLUSTER)) == "MANIFEST_INVALID"


def test_a_policy_without_one_is_what_it_was_before_there_were_any() -> None:
    """Its signature holds in a release that knows nothing of it."""
    assert b"reinstated" not in policy(2).to_bytes()
