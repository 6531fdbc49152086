# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An endorsement key names exactly one live identity, or nobody."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy import (
    Admission,
    AllowedValue,
    MeasurementProfile,
    NodeIdentity,
    Posture,
    Role,
    SitePolicy,
    find_identity,
    identity_name,
)

EK = "a1" * 32
OTHER = "b2" * 32


def machine(ek: str = EK, name: str = "w-1", admission: Admission = Admission.APPROVED) -> NodeIdentity:
    return NodeIdentity(ek_sha256=ek, node_name=name, role=Role.WORKER, admission=admission)


def profile(*pcrs: int) -> MeasurementProfile:
    registers = {pcr: (AllowedValue(bytes(32), "x"),) for pcr in pcrs}
    return MeasurementProfile(name="x", posture=Posture.BOOT, registers=registers)


def test_a_name_is_made_of_the_key() -> None:
    assert machine().name == identity_name(EK) == "ek-a1a1a1a1a1a1a1a1a1a1"


def test_an_approved_machine_is_found() -> None:
    assert find_identity([machine(OTHER, "w-2"), machine()], EK) == machine()


@pytest.mark.parametrize(
    ("identities", "reason"),
    [
        pytest.param([], "IDENTITY_UNKNOWN", id="no identity at all"),
        pytest.param([machine(OTHER)], "IDENTITY_UNKNOWN", id="a machine with another TPM"),
        pytest.param([machine(admission=Admission.REFUSED)], "IDENTITY_REFUSED", id="a refused machine"),
        pytest.param([machine(admission=Admission.REVOKED)], "IDENTITY_REVOKED", id="a revoked machine"),
        pytest.param(
            [machine(), machine(name="w-9", admission=Admission.REVOKED)],
            "IDENTITY_REVOKED",
            id="a revocation outweighs an approval of the same key",
        ),
        pytest.param([machine(), machine(name="w-2")], "IDENTITY_AMBIGUOUS", id="one key with two node names"),
        pytest.param([machine(), machine()], "IDENTITY_AMBIGUOUS", id="the same identity twice"),
        pytest.param(
            [machine(), machine(admission=Admission.REFUSED)], "IDENTITY_AMBIGUOUS", id="approved and refused at once"
        ),
        pytest.param([machine(), machine(OTHER)], "IDENTITY_AMBIGUOUS", id="one node name with two keys"),
    ],
)
def test_anything_else_is_refused(identities: list[NodeIdentity], reason: str) -> None:
    """S6: nobody takes over a name with another TPM."""
    with pytest.raises(PolicyError) as caught:
        find_identity(identities, EK)
    assert caught.value.code == reason


@pytest.mark.parametrize("admission", [Admission.REFUSED, Admission.REVOKED])
def test_a_dead_machine_leaves_its_name_to_another(admission: Admission) -> None:
    assert find_identity([machine(), machine(OTHER, admission=admission)], EK) == machine()


def test_an_ambiguity_names_both() -> None:
    with pytest.raises(
        PolicyError, match=r"node name w-1, found ek-a1a1.* \(w-1, Approved\), ek-b2b2.* \(w-1, Approved\)"
    ):
        find_identity([machine(), machine(OTHER)], EK)


def policy(**changes: Any) -> SitePolicy:
    return SitePolicy(**{"profiles": [profile(4, 0), profile(4, 9)], "identities": [machine()], **changes})


def test_the_site_is_a_policy() -> None:
    assert policy().identity_for(EK) == machine()
    assert policy().profiles() == (profile(4, 0), profile(4, 9))


def test_the_selection_is_that_of_all_profiles_and_the_lock() -> None:
    assert policy().selection() == (0, 4, 9, 15)
    assert policy(lock_register=14).selection() == (0, 4, 9, 14)
    assert policy(profiles=[]).selection() == (15,)
