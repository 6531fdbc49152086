# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S17: a join service that is not the cluster's, or whose key was stolen, hands out what it likes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.install import NodeWorld, install_components
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.store import open_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.bundle.conftest import (
    FakeContainerd,
    bundle_dir,
    containerd,
    node_root,
)
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services import (
    test_received_ticket as tickets,
)
from cryptography.hazmat.primitives import serialization

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["bundle_dir", "containerd", "node_root"]

THREAT = Threat(
    id="S17",
    title="Malicious join service",
    case="joins without a pinned CA (kubeadm, k3s)",
    bed="bytes",
    stops=(
        ("services/received_ticket.py step 1", "TICKET_SIGNATURE"),
        ("services/received_ticket.py step 6", "TICKET_NOT_OURS"),
        ("bundle/install.py", "BUNDLE_HASH_MISMATCH"),
    ),
)

KUBELET = "usr/local/bin/kubelet"


@pytest.fixture
def node() -> tickets.Node:
    return tickets.Node()


def opened(node: tickets.Node, answer: bytes, **changes: Any) -> Any:
    return tickets.open_ticket(
        answer,
        expected=tickets.Expected(
            cluster_id=tickets.bundle().cluster_id,
            node_name="w-1",
            disk_id="",
            binding=tickets.BINDING,
            kubelet_key=tickets.SecretBytes(tickets.pem(node.key)),
        ),
        pins=JoinCaPins.from_pem(tickets.JOIN_CA.certificate),
        secret=tickets.SECRET,
        one_time_key=node.one_time_key,
        now=tickets.NOW,
    )


def test_a_ticket_under_another_join_ca(node: tickets.Node) -> None:
    """The leaf of a service signs no tickets: its thief still has no join CA."""
    assert opened(node, node.answer())
    foreign = node.issued(tickets.bundle(tickets.FOREIGN_CA))
    assert code_of(lambda: opened(node, node.answer(foreign))) == "TICKET_SIGNATURE"


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("cluster_ca", id="another cluster CA"),
        pytest.param("1.35.4", id="an older Kubernetes"),
        pytest.param("api.prod.example", id="another API"),
    ],
)
def test_a_ticket_that_was_edited(node: tickets.Node, what: str) -> None:
    """Everything public in it is under the signature too."""
    issued = node.issued()
    assert opened(node, node.answer(issued))
    old, new = {
        "cluster_ca": (
            node.ca.certificate.public_bytes(serialization.Encoding.PEM),
            tickets.cluster_ca().certificate.public_bytes(serialization.Encoding.PEM),
        ),
        "1.35.4": (b"1.35.4", b"1.31.4"),
        "api.prod.example": (b"api.prod.example", b"api.evil.example"),
    }[what]
    assert old in issued.ticket
    edited = replace(issued, ticket=issued.ticket.replace(old, new))
    assert code_of(lambda: opened(node, node.answer(edited))) == "TICKET_SIGNATURE"


def test_a_ticket_of_a_cluster_with_the_same_join_ca(node: tickets.Node) -> None:
    """Its secrets derive another cluster id: the node does not lock itself to it."""
    assert opened(node, node.answer())
    other = tickets.bundle(salt=b"o" * 32)
    assert code_of(lambda: opened(node, node.answer(node.issued(other)))) in {"TICKET_NOT_OURS", "TICKET_SIGNATURE"}


@pytest.mark.parametrize("pinned", [False, True], ids=["by the hash in the manifest", "by the pinned manifest"])
def test_another_component_is_not_installed(
    bundle_dir: Path, containerd: FakeContainerd, node_root: Path, *, pinned: bool
) -> None:
    """Programs come from the bundle that `prepare` pinned, never from a service; one byte off installs nothing."""
    world = NodeWorld(runner=containerd, root=node_root, machine="x86_64")
    digest = open_bundle(bundle_dir).digest
    params = {"bundle": str(bundle_dir), "role": "worker", "manifest_sha256": digest}
    assert install_components(params, True, world=world).changed
    if pinned:
        older = {**json.loads((bundle_dir / "manifest.json").read_text()), "kubernetes_version": "1.31.4"}
        (bundle_dir / "manifest.json").write_text(json.dumps(older))
    else:
        (bundle_dir / "images/node.tar").write_bytes(b"an image archivE")
    assert code_of(lambda: install_components(params, False, world=world)) == "BUNDLE_HASH_MISMATCH"
    assert not (node_root / KUBELET).exists()
