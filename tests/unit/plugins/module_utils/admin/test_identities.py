# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identities from an inventory."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    enrolled_identities,
    read_nodes,
    render_identity_file,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, Role, identity_name

EK_A, EK_B = "a" * 64, "b" * 64
GROUPS = {"control_planes": ["cp-1"], "workers": ["w-1", "w-2"]}


def hosts(**changes: object) -> dict[str, dict[str, object]]:
    base: dict[str, dict[str, object]] = {
        "cp-1": {"attested_ek": f"sha256:{EK_A}", "attested_ek_known_by": "console"},
        "w-1": {"attested_ek": f"sha256:{EK_B}"},
        "w-2": {},
    }
    base["w-1"] |= changes
    return base


def test_group_gives_the_role_and_host_vars_the_tpm() -> None:
    found = {node.name: (node.role, node.ek_sha256) for node in read_nodes(hosts(), GROUPS)}
    assert found == {"cp-1": (Role.CONTROL_PLANE, EK_A), "w-1": (Role.WORKER, EK_B), "w-2": (Role.WORKER, None)}


def test_a_fingerprint_written_by_hand_is_an_approved_identity() -> None:
    """What `policy` applies for a machine that nobody has asked yet, because it is not racked."""
    by_hand = {"attested_ek": f"sha256:{EK_B}", "attested_ek_known_by": "console fingerprint"}
    (found,) = enrolled_identities(read_nodes({"w-9": by_hand}, {"workers": ["w-9"]}))
    assert (found.node_name, found.ek_sha256, found.role) == ("w-9", EK_B, Role.WORKER)
    assert (found.admission, found.known_by) == (Admission.APPROVED, "console fingerprint")


@pytest.mark.parametrize(
    ("known", "by"),
    [
        pytest.param({}, "console fingerprint", id="written by an admin alone"),
        pytest.param({"attested_ek_known_by": ""}, "console fingerprint", id="with an empty word"),
        pytest.param({"attested_ek_known_by": "delivery list"}, "delivery list", id="with a word"),
    ],
)
def test_how_a_machine_is_known_is_said_of_each(known: dict[str, str], by: str) -> None:
    """Also without `enroll`, which writes the same words: its file changes nothing of what was signed."""
    before = enrolled_identities(read_nodes(hosts(**known), GROUPS))
    found = next(one for one in before if one.node_name == "w-1")
    assert found.known_by == by
    written = yaml.safe_load(render_identity_file(ek_sha256=EK_B, known_by=by))
    assert enrolled_identities(read_nodes(hosts(**written), GROUPS)) == before


def test_nobody_knows_a_machine_without_a_key() -> None:
    assert next(one for one in read_nodes(hosts(), GROUPS) if one.name == "w-2").known_by == ""


def test_machine_that_is_not_enrolled_has_no_identity() -> None:
    assert [one.node_name for one in enrolled_identities(read_nodes(hosts(), GROUPS))] == ["cp-1", "w-1"]


def test_one_tpm_for_two_nodes_is_refused() -> None:
    with pytest.raises(AttestedError) as refused:
        enrolled_identities(read_nodes(hosts(attested_ek=f"sha256:{EK_A}"), GROUPS))
    assert refused.value.code == "IDENTITY_AMBIGUOUS"


@pytest.mark.parametrize(
    ("inventory", "groups", "said"),
    [
        pytest.param(hosts(attested_ek="md5:1"), GROUPS, "attested_ek of w-1", id="an EK that is no digest"),
        pytest.param(hosts(attested_ek="sha256:" + "A" * 64), GROUPS, "attested_ek of w-1", id="upper-case digits"),
        pytest.param(hosts(attested_ek_replaced=["1"]), GROUPS, "attested_ek_replaced of w-1", id="a wrong old EK"),
        pytest.param(hosts(attested_admission="Maybe"), GROUPS, "attested_admission of w-1", id="a word that is none"),
        pytest.param({}, {"workers": ["Node_1"]}, "'Node_1'", id="a name that is no node name"),
        pytest.param({}, {"workers": ["x"], "control_planes": ["x"]}, "in both", id="a host in both groups"),
    ],
)
def test_unusable_inventory_is_refused_by_name(inventory, groups, said: str) -> None:
    with pytest.raises(AttestedError, match=said) as refused:
        read_nodes(inventory, groups)
    assert refused.value.code == "SITE_INVENTORY"


EK_C = "c" * 64


@pytest.mark.parametrize("admission", [Admission.APPROVED, Admission.REFUSED, Admission.REVOKED])
def test_the_admins_word_is_in_the_site(admission: Admission) -> None:
    found = enrolled_identities(read_nodes(hosts(attested_admission=admission.value), GROUPS))
    assert {one.node_name: one.admission for one in found} == {"cp-1": Admission.APPROVED, "w-1": admission}


def test_a_machine_that_was_replaced_stays_revoked_and_names_its_heir() -> None:
    found = enrolled_identities(read_nodes(hosts(attested_ek_replaced=[f"sha256:{EK_C}"]), GROUPS))
    old = next(one for one in found if one.ek_sha256 == EK_C)
    assert (old.node_name, old.admission, old.replaced_by) == ("w-1", Admission.REVOKED, identity_name(EK_B))


def test_an_identity_file_keeps_who_was_revoked_and_replaced() -> None:
    text = render_identity_file(ek_sha256=EK_B, known_by="x", admission=Admission.REVOKED, replaced=[EK_C])
    known = yaml.safe_load(text)
    found = enrolled_identities(read_nodes({"w-1": known}, {"workers": ["w-1"]}))
    assert {one.ek_sha256: one.admission for one in found} == {EK_B: Admission.REVOKED, EK_C: Admission.REVOKED}


def test_identity_file_is_yaml_that_reads_back() -> None:
    text = render_identity_file(ek_sha256=EK_A, known_by="certificate of lab CA").decode()
    assert f"attested_ek: sha256:{EK_A}\n" in text


SECOND_B, SECOND_C = "2" * 64, "3" * 64
ALIASES = {f"sha256:{EK_B}": f"sha256:{SECOND_B}", f"sha256:{EK_C}": f"sha256:{SECOND_C}"}


def test_both_keys_of_a_chip_are_one_identity_also_of_the_machines_before() -> None:
    known = hosts(attested_ek_replaced=[f"sha256:{EK_C}"], attested_ek_aliases=ALIASES)
    found = {one.ek_sha256: one.ek_alias for one in enrolled_identities(read_nodes(known, GROUPS))}
    assert found == {EK_A: "", EK_B: SECOND_B, EK_C: SECOND_C}


def test_an_identity_file_with_second_keys_reads_back_and_one_without_is_as_before() -> None:
    aliases = {EK_B: SECOND_B, EK_C: SECOND_C}
    text = render_identity_file(ek_sha256=EK_B, known_by="x", replaced=[EK_C], aliases=aliases)
    (node,) = read_nodes({"w-1": yaml.safe_load(text)}, {"workers": ["w-1"]})
    assert (node.aliases, node.ek_alias, node.keys_before) == (aliases, SECOND_B, {EK_C, SECOND_C})
    assert b"aliases" not in render_identity_file(ek_sha256=EK_B, known_by="x", aliases={})


@pytest.mark.parametrize(
    "second",
    [pytest.param(EK_A, id="the key of another node"), pytest.param(EK_C, id="a key that another node replaced")],
)
def test_an_alias_that_is_another_machines_key_is_refused(second: str) -> None:
    known = hosts(attested_ek_aliases={f"sha256:{EK_B}": f"sha256:{second}"})
    known["cp-1"] |= {"attested_ek_replaced": [f"sha256:{EK_C}"]}
    with pytest.raises(AttestedError) as refused:
        enrolled_identities(read_nodes(known, GROUPS))
    assert refused.value.code == "EK_ALIAS_TAKEN"


@pytest.mark.parametrize(
    "aliases",
    [
        pytest.param([f"sha256:{SECOND_B}"], id="a list"),
        pytest.param({f"sha256:{EK_B}": SECOND_B}, id="a second key without its algorithm"),
        pytest.param({f"sha256:{EK_A}": f"sha256:{SECOND_B}"}, id="of another node's key"),
        pytest.param({f"sha256:{EK_B}": f"sha256:{EK_B}"}, id="the same key twice"),
    ],
)
def test_second_keys_that_say_nothing_are_refused(aliases: object) -> None:
    with pytest.raises(AttestedError, match="attested_ek_aliases of w-1") as refused:
        read_nodes(hosts(attested_ek_aliases=aliases), GROUPS)
    assert refused.value.code == "SITE_INVENTORY"


ON = {"attested_kubelet_serving_certificates": True}


@pytest.mark.parametrize(
    ("known", "addresses"),
    [
        pytest.param({"attested_node_ip": "10.0.0.21"}, ("10.0.0.21",), id="nothing said"),
        pytest.param({"ansible_host": "w-1.example"}, (), id="nothing said, and no address"),
        pytest.param({**ON, "attested_kubelet_serving_certificates": False, "ansible_host": "10.0.0.21"}, (), id="off"),
        pytest.param({**ON, "attested_node_ip": "10.0.0.21", "ansible_host": "w-1.example"}, ("10.0.0.21",), id="both"),
        pytest.param({**ON, "ansible_host": "10.0.0.21"}, ("10.0.0.21",), id="where Ansible reaches it"),
        pytest.param({**ON, "ansible_host": "fd00::21"}, ("fd00::21",), id="version 6"),
        pytest.param(
            {"attested_node_ip": "10.0.0.21", "attested_second_node_ip": "fd00::21"},
            ("10.0.0.21", "fd00::21"),
            id="two",
        ),
        pytest.param(
            {"attested_kubelet_serving_certificates": "yes", "ansible_host": "10.0.0.21"}, ("10.0.0.21",), id="a word"
        ),
        pytest.param({"attested_kubelet_serving_certificates": "no", "ansible_host": "w"}, (), id="the other word"),
    ],
)
def test_an_address_is_said_where_certificates_name_it(known: dict[str, object], addresses: tuple[str, ...]) -> None:
    identities = enrolled_identities(read_nodes(hosts(**known), GROUPS))
    assert {one.node_name: one.addresses for one in identities} == {"cp-1": (), "w-1": addresses}


@pytest.mark.parametrize("variable", ["attested_node_ip", "attested_second_node_ip"])
@pytest.mark.parametrize("address", ["w-1.example", "10.0.0.21/24", "127.0.0.1", "0.0.0.0", "ff02::1", "fd00::021"])
def test_an_address_that_no_certificate_should_name_is_refused(variable: str, address: str) -> None:
    with pytest.raises(AttestedError, match="expected attested_node_ip and .* of w-1 as IP addresses") as caught:
        read_nodes(hosts(**ON, **{"attested_node_ip": "10.0.0.21", variable: address}), GROUPS)
    assert caught.value.code == "SITE_INVENTORY"


def test_two_nodes_with_one_address_are_refused() -> None:
    inventory = hosts(**ON, attested_node_ip="10.0.0.21", attested_second_node_ip="fd00::21")
    inventory["w-2"] = {**ON, "attested_node_ip": "10.0.0.22", "attested_second_node_ip": "fd00::21"}
    with pytest.raises(AttestedError, match="w-1 and w-2 have fd00::21") as caught:
        read_nodes(inventory, GROUPS)
    assert caught.value.code == "SITE_INVENTORY"
