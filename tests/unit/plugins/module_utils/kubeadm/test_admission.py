# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's word on a machine: what is patched, and what is refused before anything is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kubelet import KUBELET_LIFE
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.release import TICKET_LIFE
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import ENCRYPTION_FILE
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.admission import (
    HELD,
    AdmissionChange,
    held_by,
    plan_admission,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.files import SHARED_FILES
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.standing import shown_time

MADE = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LABEL = {"metadata": {"labels": {"attested-kubernetes.dev/revoked": "true"}}}


def identity(name: str, node: str = "w-1", *, role: str = "worker", admission: str = "Approved") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "role": role, "admission": admission}}


FLEET = [
    identity("ek-cp", "cp-1", role="control-plane"),
    identity("ek-1", "w-1"),
    identity("ek-2", "w-2", admission="Refused"),
    identity("ek-old", "w-3", admission="Revoked"),
    identity("ek-new", "w-3"),
    identity("ek-gone", "w-4", admission="Revoked"),
    identity("ek-new-one", "ek-new-one", admission="Pending"),
]


@pytest.mark.parametrize(
    ("name", "admission", "patch"),
    [
        pytest.param("w-1", Admission.REVOKED, {**LABEL, "spec": {"admission": "Revoked"}}, id="a node is revoked"),
        pytest.param("ek-1", Admission.REVOKED, {**LABEL, "spec": {"admission": "Revoked"}}, id="by its key"),
        pytest.param("w-1", Admission.REFUSED, {"spec": {"admission": "Refused"}}, id="a node is refused"),
        pytest.param("w-2", Admission.APPROVED, {"spec": {"admission": "Approved"}}, id="a refused one comes back"),
        pytest.param("w-1", Admission.APPROVED, {}, id="nothing to do"),
        pytest.param("w-4", Admission.REVOKED, {}, id="revoked already"),
    ],
)
def test_what_is_patched(name: str, admission: Admission, patch: dict[str, Any]) -> None:
    assert plan_admission(FLEET, AdmissionChange(name=name, admission=admission)).patch == patch


def test_a_node_that_was_replaced_is_its_present_machine() -> None:
    assert plan_admission(FLEET, AdmissionChange(name="w-3", admission=Admission.REVOKED)).name == "ek-new"


def test_a_replaced_machine_names_its_heir() -> None:
    plan = plan_admission(FLEET, AdmissionChange(name="w-1", admission=Admission.REVOKED, replaced_by="ek-9"))
    assert plan.patch["spec"] == {"admission": "Revoked", "replacedBy": "ek-9"}


def test_a_waiting_machine_becomes_the_node_that_the_admin_says() -> None:
    plan = plan_admission(FLEET, AdmissionChange(name="ek-new-one", admission=Admission.APPROVED, node_name="w-7"))
    assert plan.patch == {"spec": {"admission": "Approved", "nodeName": "w-7"}}


def test_a_waiting_machine_is_refused_without_a_name() -> None:
    plan = plan_admission(FLEET, AdmissionChange(name="ek-new-one", admission=Admission.REFUSED))
    assert plan.patch == {"spec": {"admission": "Refused"}}


@pytest.mark.parametrize(
    ("node_name", "code"),
    [
        pytest.param("", "IDENTITY_NAME_WANTED", id="no name"),
        pytest.param("w-1", "IDENTITY_AMBIGUOUS", id="the name of another machine"),
    ],
)
def test_a_waiting_machine_needs_a_name_of_its_own(node_name: str, code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        plan_admission(FLEET, AdmissionChange(name="ek-new-one", admission=Admission.APPROVED, node_name=node_name))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("name", "admission", "code"),
    [
        pytest.param("w-9", Admission.REVOKED, "IDENTITY_NOT_FOUND", id="nobody of that name"),
        pytest.param("w-4", Admission.APPROVED, "IDENTITY_REVOKED", id="a revoked one"),
        pytest.param("ek-old", Admission.REFUSED, "IDENTITY_REVOKED", id="a revoked one is not merely refused"),
        pytest.param("cp-1", Admission.REVOKED, "IDENTITY_LAST_CONTROL_PLANE", id="the only control plane"),
    ],
)
def test_what_is_refused(name: str, admission: Admission, code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        plan_admission(FLEET, AdmissionChange(name=name, admission=admission))
    assert caught.value.code == code


def test_its_certificate_ends_with_the_last_ticket_and_not_with_the_last_evidence() -> None:
    machine = identity("ek-cert", "w-5")
    machine["status"] = {
        "tickets": {"expires": shown_time(MADE + TICKET_LIFE)},
        "lastAttestation": {"time": shown_time(MADE + timedelta(days=2))},
    }
    until = plan_admission([machine], AdmissionChange(name="w-5", admission=Admission.REVOKED)).certificate_until
    assert datetime.fromisoformat(until) == MADE + KUBELET_LIFE + TICKET_LIFE


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({}, id="nothing is known of it"),
        pytest.param({"lastAttestation": {"time": shown_time(MADE)}}, id="a first control plane that pushes evidence"),
    ],
)
def test_without_a_ticket_no_end_is_told(status: dict[str, Any]) -> None:
    machine = {**identity("ek-none", "w-5"), "status": status}
    assert plan_admission([machine], AdmissionChange(name="w-5", admission=Admission.REVOKED)).certificate_until == ""


def test_two_machines_of_one_node_are_told_by_their_keys() -> None:
    fleet = [*FLEET, identity("ek-twin", "w-1")]
    with pytest.raises(AttestedError, match="found ek-1, ek-twin") as caught:
        plan_admission(fleet, AdmissionChange(name="w-1", admission=Admission.REFUSED))
    assert caught.value.code == "IDENTITY_NOT_FOUND"
    assert plan_admission(fleet, AdmissionChange(name="ek-twin", admission=Admission.REFUSED)).name == "ek-twin"


def test_a_control_plane_is_approved_by_the_site_alone() -> None:
    fleet = [*FLEET, identity("ek-cp2", "cp-2", role="control-plane", admission="Refused")]
    with pytest.raises(AttestedError) as caught:
        plan_admission(fleet, AdmissionChange(name="cp-2", admission=Admission.APPROVED))
    assert caught.value.code == "IDENTITY_NEEDS_SIGNATURE"


def test_a_control_plane_beside_another_is_revoked() -> None:
    fleet = [*FLEET, identity("ek-cp2", "cp-2", role="control-plane")]
    assert plan_admission(fleet, AdmissionChange(name="cp-1", admission=Admission.REVOKED)).patch


def test_the_second_key_of_a_known_machine_is_no_machine_of_its_own() -> None:
    """It waited before its chip was enrolled with both keys: approving it would lock out both."""
    waiting, chip = identity("ek-2nd", "ek-2nd", admission="Pending"), identity("ek-1st", "w-8")
    waiting["spec"]["ekSha256"] = "22" * 32
    chip["spec"] |= {"ekSha256": "11" * 32, "ekAliasSha256": "22" * 32}
    wish = AdmissionChange(name="ek-2nd", admission=Admission.APPROVED, node_name="w-9")
    assert plan_admission([*FLEET, waiting], wish).patch["spec"]["admission"] == "Approved"
    with pytest.raises(AttestedError) as caught:
        plan_admission([*FLEET, waiting, chip], wish)
    assert caught.value.code == "EK_ALIAS_TAKEN"


def test_a_compromised_control_plane_is_refused_with_all_that_it_held() -> None:
    fleet = [*FLEET, identity("ek-cp-2", "cp-2", role="control-plane")]
    with pytest.raises(AttestedError) as caught:
        plan_admission(fleet, AdmissionChange(name="cp-1", admission=Admission.REVOKED, compromised=True))
    assert caught.value.code == "HELD_KEYS_NOT_ROTATED"
    for one in HELD:
        assert one.what in caught.value.message
        assert one.could in caught.value.message
    assert plan_admission(fleet, AdmissionChange(name="cp-1", admission=Admission.REVOKED)).patch


AUTHORITY = "0123456789abcdef"
ANNOTATION = {"attested-kubernetes.dev/held-authority": AUTHORITY}


def test_a_compromised_control_plane_is_revoked_where_its_cluster_ca_is_rotated() -> None:
    fleet = [*FLEET, identity("ek-cp-2", "cp-2", role="control-plane")]
    wish = AdmissionChange(name="cp-1", admission=Admission.REVOKED, compromised=True, authority=AUTHORITY)
    plan = plan_admission(fleet, wish)
    assert plan.patch == {
        "metadata": {**LABEL["metadata"], "annotations": ANNOTATION},
        "spec": {"admission": "Revoked"},
    }


def test_what_it_held_is_written_once_so_that_a_repetition_rotates_nothing_else() -> None:
    revoked = identity("ek-cp-2", "cp-2", role="control-plane", admission="Revoked")
    wish = AdmissionChange(name="ek-cp-2", admission=Admission.REVOKED, compromised=True, authority=AUTHORITY)
    plan = plan_admission([*FLEET, revoked], wish)
    assert plan.patch == {"metadata": {"annotations": ANNOTATION}}, "it was revoked before it was called compromised"
    revoked["metadata"]["annotations"] = ANNOTATION
    for authority in (AUTHORITY, "fedcba9876543210", ""):
        assert plan_admission([*FLEET, revoked], replace(wish, authority=authority)).patch == {}


@pytest.mark.parametrize("compromised", [False, True])
def test_nothing_is_written_down_of_a_worker(compromised: bool) -> None:
    wish = AdmissionChange(name="w-1", admission=Admission.REVOKED, compromised=compromised, authority=AUTHORITY)
    assert "annotations" not in plan_admission(FLEET, wish).patch["metadata"]


def test_what_no_playbook_rotates_is_the_master_secret_and_the_join_ca() -> None:
    assert [one.what for one in HELD if not one.rotated] == [
        "measurement secret and seed of the emergency SSH CA",
        "key of the join CA",
    ]
    playbooks = Path(__file__).parents[5] / "playbooks"
    assert [one.rotated for one in HELD if one.rotated and not (playbooks / f"{one.rotated}.yml").exists()] == []


def test_a_compromised_worker_held_nothing_of_the_clusters() -> None:
    plan = plan_admission(FLEET, AdmissionChange(name="w-1", admission=Admission.REVOKED, compromised=True))
    assert plan.patch["spec"] == {"admission": "Revoked"}
    assert held_by(plan.identity) == ()


def test_every_file_that_control_planes_share_is_in_the_list_of_what_one_held() -> None:
    listed = " ".join(one.where for one in HELD)
    private = [name for name in (*SHARED_FILES, ENCRYPTION_FILE) if name.endswith((".key", "encryption.yaml"))]
    assert [name for name in private if f"/etc/kubernetes/{name}" not in listed] == []
