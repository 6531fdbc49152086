# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S16: a node sheds what is marked on its Node object: by deleting it, by having it deleted, by making it anew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.api_bed.test_standing import (
    condition,
    fail,
    is_bad,
    join,
    patch,
    settled,
)
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine

THREAT = Threat(
    id="S16",
    title="Node object deleted and made anew",
    case="CVE-2025-5187",
    bed="api",
    stops=(("roles/key_service/files/admission.yml", ""), ("keyservice/node_conditions.py", "")),
)

ROLE = "node-role.kubernetes.io/control-plane"
ISOLATED = "node-restriction.kubernetes.io/tenant"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "is-not-there", "uid": "00000000-0000-4000-8000-000000000000"}


@pytest.fixture
def node(api: ApiBed, machines: Callable[..., Machine]) -> Machine:
    """A joined machine whose kubelet has its credential, with a label that an admin gave it."""
    machine = machines()
    join(api, machine)
    settled(api, machine, lambda found: condition(found).get("status") == "True")
    names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{machine.name}")]
    api.ca.issue(machine.name, names=names)
    api.kubectl("label", "node", machine.name, f"{ISOLATED}=a")
    return machine


def make(api: ApiBed, node: Machine, name: str = "", **metadata: Any) -> str:
    """Make a Node with the kubelet's credential and return what kubectl says."""
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name or node.name, **metadata}}
    return api.kubectl("create", "-f", "-", user=node.name, stdin=json.dumps(document), check=False)


def test_a_node_does_not_delete_its_own_object(api: ApiBed, node: Machine) -> None:
    assert "orbidden" in api.kubectl("delete", "node", node.name, user=node.name, check=False)
    assert "orbidden" in api.kubectl("delete", "nodes", "--all", user=node.name, check=False)
    assert api.get("node", node.name)["metadata"]["labels"][ISOLATED] == "a"


def test_a_node_does_not_have_its_object_collected(api: ApiBed, node: Machine) -> None:
    """The garbage collector deletes what an owner that is not there owns; with an allowed change it goes through."""
    assert "orbidden" in patch(api, node.name, node.name, {"metadata": {"ownerReferences": [OWNER]}}, "merge")
    patch(api, node.name, node.name, {"metadata": {"annotations": {"a": "b"}}}, "merge")
    found = api.get("node", node.name)["metadata"]
    assert found["annotations"]["a"] == "b"
    assert "ownerReferences" not in found


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({ISOLATED: "b"}, id="another tenant"),
        pytest.param({ISOLATED: None}, id="no tenant"),
        pytest.param({ROLE: ""}, id="a control plane"),
    ],
)
def test_a_node_does_not_change_labels_that_others_trust(
    api: ApiBed, node: Machine, labels: dict[str, str | None]
) -> None:
    assert "orbidden" in patch(api, node.name, node.name, {"metadata": {"labels": labels}}, "merge")


def test_a_node_that_an_admin_deleted_makes_itself_without_them(api: ApiBed, node: Machine) -> None:
    api.kubectl("delete", "node", node.name)
    for labels in ({ISOLATED: "b"}, {ROLE: ""}):
        assert "orbidden" in make(api, node, labels=labels)
    assert "orbidden" in make(api, node, name=f"other-{node.name}")
    assert "what its Node object belongs to" in make(api, node, ownerReferences=[OWNER])
    assert "created" in make(api, node)


def test_what_was_held_against_a_node_comes_back_with_it(api: ApiBed, node: Machine) -> None:
    """Its evidence was refused, its Node is gone and made anew: taint and condition are there again."""
    fail(node)
    settled(api, node, is_bad)
    api.kubectl("delete", "node", node.name)
    assert "created" in make(api, node)
    settled(api, node, is_bad)
