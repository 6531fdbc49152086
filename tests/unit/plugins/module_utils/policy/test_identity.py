# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An endorsement key names exactly one live identity, or nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import (
    Admission,
    IdentityStatus,
    NodeIdentity,
    Role,
    find_identity,
    identity_name,
    inherited_disk,
    is_address,
    require_own_aliases,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    AllowedValue,
    MeasurementProfile,
    Posture,
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


def old(disk_id: str = "disk-a", **changes: Any) -> NodeIdentity:
    """Return a revoked machine that an admin replaced by `machine()`."""
    known = {"ek_sha256": OTHER, "node_name": "w-1", "admission": Admission.REVOKED, "replaced_by": machine().name}
    return NodeIdentity(role=Role.WORKER, status=IdentityStatus(disk_id=disk_id), **{**known, **changes})


@pytest.mark.parametrize(
    ("left", "disk"),
    [
        pytest.param([old()], "disk-a", id="named as the heir"),
        pytest.param([old(disk_id="")], "", id="of one that never had a disk"),
        pytest.param([old(replaced_by="")], "", id="not named"),
        pytest.param([old(replaced_by=identity_name("c3" * 32))], "", id="somebody else is the heir"),
        pytest.param([old(node_name="w-2")], "", id="of another node"),
        pytest.param([old(admission=Admission.APPROVED)], "", id="of a live machine"),
        pytest.param([old(), old(ek_sha256="c3" * 32)], "disk-a", id="through two machines with one disk"),
        pytest.param(
            [old(disk_id=""), old(ek_sha256="c3" * 32)], "disk-a", id="through two machines, one never had a disk"
        ),
        pytest.param([], "", id="of nobody"),
    ],
)
def test_whose_disk_a_machine_takes_over(left: list[NodeIdentity], disk: str) -> None:
    assert inherited_disk([*left, machine()], machine()) == disk


def test_two_disks_for_one_heir_are_refused() -> None:
    with pytest.raises(PolicyError) as caught:
        inherited_disk([old(), old(disk_id="disk-b", ek_sha256="c3" * 32)], machine())
    assert caught.value.code == "IDENTITY_AMBIGUOUS"


def plane(**changes: Any) -> NodeIdentity:
    return replace(machine(), role=Role.CONTROL_PLANE, **changes)


def holding(one: NodeIdentity, disk_id: str = "disk-a") -> NodeIdentity:
    return replace(one, status=IdentityStatus(disk_id=disk_id))


@pytest.mark.parametrize(
    ("others", "heir"),
    [
        pytest.param([replace(old(), role=Role.CONTROL_PLANE)], machine(), id="a worker is no heir of a control plane"),
        pytest.param([old()], plane(), id="nor a control plane of a worker"),
        pytest.param(
            [old(), holding(machine("c3" * 32, "w-3"))], machine(), id="an heir of a disk that another node has now"
        ),
        pytest.param([holding(machine(OTHER, "w-2"))], holding(machine()), id="two live nodes with one disk"),
        pytest.param(
            [old(admission=Admission.REFUSED)], holding(machine()), id="a refused machine's, which may come back"
        ),
        pytest.param([old(node_name="w-2")], holding(machine()), id="a revoked machine's of another node"),
        pytest.param(
            [replace(old(), role=Role.CONTROL_PLANE)], holding(machine()), id="a revoked machine's of another role"
        ),
    ],
)
def test_a_disk_is_one_nodes_alone(others: list[NodeIdentity], heir: NodeIdentity) -> None:
    with pytest.raises(PolicyError) as caught:
        inherited_disk([*others, heir], heir)
    assert caught.value.code == "DISK_ID_TAKEN"
    assert others[-1].name in caught.value.message


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([old(replaced_by="")], id="the machine that was this node before"),
        pytest.param([old(), old(ek_sha256="c3" * 32, replaced_by=identity_name(OTHER))], id="and the one before it"),
        pytest.param([holding(machine(OTHER, "w-2"), "disk-b"), machine("c3" * 32, "w-3")], id="nodes with their own"),
    ],
)
def test_a_disk_of_ones_own_stays_ones_own(others: list[NodeIdentity]) -> None:
    heir = holding(machine())
    inherited_disk([*others, heir], heir)


def test_nodes_without_a_disk_share_none() -> None:
    assert inherited_disk([machine(OTHER, "w-2"), machine()], machine()) == ""


def test_an_approved_machine_is_found() -> None:
    assert find_identity([machine(OTHER, "w-2"), machine()], EK) == machine()


@pytest.mark.parametrize(
    ("identities", "reason"),
    [
        pytest.param([], "IDENTITY_UNKNOWN", id="no identity at all"),
        pytest.param([machine(OTHER)], "IDENTITY_UNKNOWN", id="a machine with another TPM"),
        pytest.param([machine(admission=Admission.REFUSED)], "IDENTITY_REFUSED", id="a refused machine"),
        pytest.param([machine(admission=Admission.PENDING)], "IDENTITY_PENDING", id="a machine that waits"),
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


SECOND = "c3" * 32


def chip(**changes: Any) -> NodeIdentity:
    """Return a machine of which both keys are known."""
    return replace(machine(), **{"ek_alias": SECOND, **changes})


@pytest.mark.parametrize("ek", [EK, SECOND])
def test_either_key_of_a_chip_is_the_same_machine(ek: str) -> None:
    found = find_identity([machine(OTHER, "w-2"), chip()], ek)
    assert (found, found.name, found.keys) == (chip(), machine().name, (EK, SECOND))


@pytest.mark.parametrize(
    ("identities", "reason"),
    [
        pytest.param([chip(admission=Admission.REVOKED)], "IDENTITY_REVOKED", id="revoked by its name"),
        pytest.param(
            [chip(), machine(SECOND, "w-2", Admission.REVOKED)], "IDENTITY_REVOKED", id="its other key was revoked"
        ),
        pytest.param(
            [chip(), chip(ek_sha256=OTHER, node_name="w-2", admission=Admission.REVOKED)],
            "IDENTITY_REVOKED",
            id="revoked as the alias of another one",
        ),
        pytest.param([chip(), machine(SECOND, "w-2")], "EK_ALIAS_TAKEN", id="its alias names another machine"),
        pytest.param(
            [chip(), chip(ek_sha256=OTHER, node_name="w-2")], "EK_ALIAS_TAKEN", id="one alias of two machines"
        ),
        pytest.param(
            [chip(), machine(SECOND, "w-2", Admission.REFUSED)], "EK_ALIAS_TAKEN", id="its alias names a refused one"
        ),
        pytest.param([chip(admission=Admission.REFUSED)], "IDENTITY_REFUSED", id="refused"),
        pytest.param([chip(), chip()], "IDENTITY_AMBIGUOUS", id="the same identity twice"),
    ],
)
def test_both_keys_of_a_chip_are_refused_alike(identities: list[NodeIdentity], reason: str) -> None:
    """Whichever key comes: who has one of them has the chip."""
    for ek in (EK, SECOND):
        with pytest.raises(PolicyError) as caught:
            find_identity(identities, ek)
        assert caught.value.code == reason


@pytest.mark.parametrize("ek", [EK, SECOND])
def test_what_waits_under_the_second_key_takes_nothing_from_the_machine(ek: str) -> None:
    """It had asked before its second key was enrolled: the queue is nobody's word."""
    waiting = machine(SECOND, identity_name(SECOND), Admission.PENDING)
    assert find_identity([waiting, chip()], ek) == chip()


def test_what_waits_is_not_admitted_by_the_alias_that_it_claims() -> None:
    approved, claims = machine(SECOND, "w-2"), chip(admission=Admission.PENDING)
    with pytest.raises(PolicyError) as caught:
        find_identity([approved, claims], EK)
    assert caught.value.code == "IDENTITY_PENDING"
    assert find_identity([approved, claims], SECOND) == approved


def test_an_alias_is_one_identitys_own() -> None:
    require_own_aliases([chip(), machine(OTHER, "w-2"), machine("d4" * 32, "w-3")])
    for other in (machine(SECOND, "w-2"), chip(ek_sha256=OTHER, node_name="w-2")):
        with pytest.raises(PolicyError) as caught:
            require_own_aliases([chip(), other])
        assert caught.value.code == "EK_ALIAS_TAKEN"
        assert "w-1" in caught.value.message
        assert "w-2" in caught.value.message


@pytest.mark.parametrize(
    ("text", "good"),
    [
        pytest.param("10.0.0.21", True, id="IPv4"),
        pytest.param("fd00::21", True, id="IPv6"),
        pytest.param("w-1", False, id="a name"),
        pytest.param("", False, id="nothing"),
        pytest.param("10.0.0.021", False, id="a leading zero"),
        pytest.param("FD00::21", False, id="capital digits"),
        pytest.param("fd00:0:0::21", False, id="not the shortest form"),
        pytest.param("fe80::1%eth0", False, id="a zone"),
        pytest.param("::ffff:a00:1", False, id="IPv4 in IPv6, in hex digits"),
        pytest.param("::ffff:10.0.0.1", False, id="IPv4 in IPv6"),
    ],
)
def test_an_address_has_one_form(text: str, good: bool) -> None:
    assert is_address(text) is good
