# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node says of its state disk, at a real API server with our admission policies: on its own Node, and no other.

A kubelet is played by its own certificate, and its own conditions by what the admin writes.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.kernel_log import Damage
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api import KubeconfigNodeWriter
from ansible_collections.attested.kubernetes.plugins.module_utils.node.disk_health import CONDITION, DiskHealth
from ansible_collections.attested.kubernetes.plugins.module_utils.node.disk_record import DiskRecord
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "x"}


@dataclass(slots=True)
class Node:
    """A Node of the API, and the machine that speaks for it: what its log says, and what it said itself."""

    name: str
    teller: KubeconfigNodeWriter
    record: DiskRecord
    damage: Damage
    said: list[str]

    def look(self, about: str = "") -> None:
        """Run the program once; with ``about``, speak of another Node."""
        DiskHealth(
            about or self.name,
            look=lambda: self.damage,
            node=self.teller,
            record=self.record,
            clock=SystemClock(),
            log=self.said.append,
        ).run()


@pytest.fixture
def nodes(api: ApiBed, tmp_path: Path) -> Callable[[str], Node]:
    """Make Nodes with a condition of the kubelet's own, and each with its kubelet's credential."""

    def make(name: str) -> Node:
        api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        patch = json.dumps({"status": {"conditions": [READY]}})
        api.kubectl("patch", "node", name, "--subresource=status", "--type=strategic", "-p", patch)
        subject = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{name}")]
        api.ca.issue(name, names=subject)
        teller = KubeconfigNodeWriter(kubeconfig(api, name, tmp_path / f"{name}.conf"))
        return Node(name, teller, DiskRecord(tmp_path / f"{name}.json"), Damage(), [])

    return make


def kubeconfig(api: ApiBed, user: str, path: Path) -> Path:
    """Write the kubeconfig of a kubelet."""
    ca = base64.b64encode((api.directory / "ca.crt").read_bytes()).decode("ascii")
    files = {"client-certificate": f"{api.directory / user}.crt", "client-key": f"{api.directory / user}.key"}
    cluster = {"server": api.server, "certificate-authority-data": ca}
    body = {"clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": files}]}
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


def conditions(api: ApiBed, name: str) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in api.get("node", name)["status"].get("conditions", ())}


def test_a_node_says_of_itself_that_its_disk_is_sound_and_then_that_it_is_not(
    api: ApiBed, nodes: Callable[[str], Node]
) -> None:
    """The kubelet's own conditions stay as they are."""
    node = nodes("disk-0")
    node.look()
    found = conditions(api, "disk-0")
    assert (found[CONDITION]["status"], found[CONDITION]["reason"]) == ("False", "NoCorruption")
    node.damage = Damage((16440,))
    node.look()
    found = conditions(api, "disk-0")
    assert (found[CONDITION]["status"], found[CONDITION]["reason"]) == ("True", "SectorCorrupt")
    assert found["Ready"]["message"] == "x"
    assert node.said[-1] == "StateDiskCorrupt of Node disk-0 is True (SectorCorrupt)"


def test_no_node_speaks_for_another(api: ApiBed, nodes: Callable[[str], Node]) -> None:
    """Neither by our program with another name, nor by the request that says it."""
    liar, victim = nodes("disk-1"), nodes("disk-2")
    liar.damage = Damage((8,))
    assert code_of(lambda: liar.look("disk-2")) == "KUBELET_CREDENTIAL_REFUSED"
    forged = {"type": CONDITION, "status": "True", "reason": "SectorCorrupt", "message": "x"}
    assert code_of(lambda: liar.teller.set_condition("disk-2", forged)) == "KUBELET_CREDENTIAL_REFUSED"
    assert CONDITION not in conditions(api, "disk-2")
    victim.look()
    assert code_of(lambda: liar.teller.set_condition("disk-2", forged)) == "KUBELET_CREDENTIAL_REFUSED"
    assert conditions(api, "disk-2")[CONDITION]["status"] == "False"


def test_the_condition_of_the_attestation_is_not_to_be_had_this_way(nodes: Callable[[str], Node]) -> None:
    """What a kubelet's credential may say of its disk, it may not say of its evidence."""
    node = nodes("disk-3")
    forged = {"type": "Attested", "status": "True", "reason": "EvidenceGood", "message": "x"}
    assert code_of(lambda: node.teller.set_condition("disk-3", forged)) == "API_UNREACHABLE"


def test_a_node_that_is_gone_is_told_nothing(api: ApiBed, nodes: Callable[[str], Node]) -> None:
    node = nodes("disk-4")
    api.kubectl("delete", "node", "disk-4")
    node.look()
    assert node.said == []
    assert node.record.load().reported_at is None
