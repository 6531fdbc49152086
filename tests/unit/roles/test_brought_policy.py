# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy that came with an init, in the playbook of the machine: when it is applied, from which files, by whom."""

from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

KEY_SERVICE = "Deploy the key service"
POLICY = "Apply the policy of the init request"
JOIN_SERVICE = "Deploy the join service"
NODE_FILES = "attested.kubernetes.node_files"


def load(*path: str) -> Any:
    return yaml.safe_load(ROOT.joinpath(*path).read_text(encoding="utf-8"))


def tasks() -> dict[str, Any]:
    """Return the tasks of the play that lets machines join, in their order."""
    _cluster, joining = load("playbooks", "machine_init.yml")
    return {one["name"]: one for one in joining["tasks"]}


def test_nobody_can_join_before_the_policy_is_in_force() -> None:
    names = list(tasks())
    order = [names.index(one) for one in (KEY_SERVICE, POLICY, JOIN_SERVICE)]
    assert order == sorted(order)


def test_without_a_policy_the_playbook_does_what_it_did_before() -> None:
    assert tasks()[POLICY]["when"] == "attested_brought_policy is defined"


def test_the_control_planes_own_evidence_is_pushed_by_what_the_key_service_starts() -> None:
    """No task of its own: a unit that the key service's role runs wants the push."""
    (files,) = [one for one in load("roles", "key_service", "tasks", "main.yml") if NODE_FILES in one]
    assert "attested-unlock.service" in files[NODE_FILES]["units"]
    unit = ROOT.joinpath("roles", "key_service", "templates", "attested-unlock.service.j2").read_text(encoding="utf-8")
    assert "Wants=attested-reattest.service" in unit.splitlines()


def test_the_key_service_hears_of_it_before_the_api_does() -> None:
    """It refuses a policy from the past; nothing of one may reach the API then."""
    record, objects = load("roles", "attestation_policy", "tasks", "brought.yml")
    assert "attested.kubernetes.policy_record" in record
    assert "attested.kubernetes.cluster_objects" in objects


def test_it_is_read_from_files_because_a_variable_would_be_a_template() -> None:
    record, objects = load("roles", "attestation_policy", "tasks", "brought.yml")
    read = "{{ lookup('ansible.builtin.file', attestation_policy_brought ~ '/%s') }}"
    assert record["attested.kubernetes.policy_record"]["policy"] == read % "policy.yml"
    assert objects["attested.kubernetes.cluster_objects"]["manifests"] == [read % "objects.yml"]
    assert tasks()[POLICY]["vars"] == {"attestation_policy_brought": "{{ attested_brought_policy }}"}
