# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chart of flannel by the real Helm at an API server with our policies: who runs it, and what its token may do."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import PodSecurity
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, binaries, why_not
from ansible_collections.attested.kubernetes.tests.support.guards import create, guarded
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.rotation import kubectl
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

CHART = ROOT / "roles" / "bundle_builder" / "files" / "charts" / "flannel"
VALUES = "image=localhost/attested-flannel:0.28.10,network=10.244.0.0/16"
PREFIX = "flannel.alpha.coreos.com"


def helm(bed: ApiBed, *words: str) -> str:
    argv = [binaries() / "helm", f"--kubeconfig={bed.directory / 'admin.conf'}", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiBed]:
    """A cluster as we make it, with two Nodes and the objects of the chart."""
    if reason := why_not():
        pytest.skip(reason)
    if not (binaries() / "helm").is_file():
        pytest.skip(f"no helm in {binaries()}: build the bundle first (playbook bundle)")
    with guarded(tmp_path_factory.mktemp("guarded"), PodSecurity()) as made:
        kubectl(made)
        made.kubectl("create", "namespace", "other")
        for name in ("w-1", "w-2"):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": {"mine": "1"}}}
            made.kubectl("create", "-f", "-", stdin=json.dumps(node))
            conditions = [{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "True"}]
            status = {"conditions": conditions, "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}
            made.kubectl("patch", "node", name, "--subresource=status", f"--patch={json.dumps({'status': status})}")
        made.kubectl("apply", "-f", "-", stdin=rendered(made))
        yield made


def rendered(bed: ApiBed) -> str:
    return helm(bed, "template", "flannel", str(CHART), "--namespace=kube-system", f"--set={VALUES}")


def patch(bed: ApiBed, token_of: str, node: str, change: dict[str, Any]) -> str:
    """Patch the status of a Node with the token that flannel has on ``token_of``, or with one of no node."""
    bound = ("--bound-object-kind=Node", f"--bound-object-name={token_of}") if token_of else ()
    token = bed.kubectl("create", "token", "flannel", "--namespace=kube-system", *bound).strip()
    request = urllib.request.Request(
        f"{bed.server}/api/v1/nodes/{node}/status",
        data=json.dumps(change).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/strategic-merge-patch+json"},
        method="PATCH",
    )
    context = ssl.create_default_context(cafile=str(bed.directory / "ca.crt"))
    try:
        with urllib.request.urlopen(request, context=context) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def test_the_api_server_takes_what_the_chart_renders(bed: ApiBed) -> None:
    """By the same dry run as the playbook's; Helm itself finds nothing wrong either."""
    words = ("flannel", str(CHART), "--namespace=kube-system", f"--set={VALUES}", "--take-ownership")
    answer = json.loads(helm(bed, "upgrade", *words, "--install", "--dry-run=server", "--output=json"))
    kinds = [document["kind"] for document in yaml.safe_load_all(answer["manifest"]) if document]

    assert sorted(kinds) == [
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "DaemonSet",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    helm(bed, "lint", "--strict", str(CHART), f"--set={VALUES}")


@pytest.mark.parametrize(("namespace", "taken"), [("kube-system", True), ("other", False)])
def test_its_pods_run_in_kube_system_alone(bed: ApiBed, namespace: str, taken: bool) -> None:
    (daemon_set,) = [one for one in yaml.safe_load_all(rendered(bed)) if one and one["kind"] == "DaemonSet"]
    template = daemon_set["spec"]["template"]
    metadata = {**template["metadata"], "name": "flannel", "namespace": namespace}
    said = create(bed, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})

    assert ("created (server dry run)" in said) == taken, said
    assert ("violates PodSecurity" in said) == (not taken)


def test_the_network_is_configured_for_nftables_and_host_gw(bed: ApiBed) -> None:
    content = bed.get("configmap", "flannel", "--namespace=kube-system")["data"]["net-conf.json"]

    assert json.loads(content) == {"Network": "10.244.0.0/16", "EnableNFTables": True, "Backend": {"Type": "host-gw"}}


def test_a_token_of_flannel_changes_what_flannel_writes_on_its_own_node(bed: ApiBed) -> None:
    up = {"type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp"}
    change = {"metadata": {"annotations": {f"{PREFIX}/public-ip": "192.0.2.7"}}, "status": {"conditions": [up]}}

    assert json.loads(patch(bed, "w-1", "w-1", change))["kind"] == "Node"
    node = bed.get("node", "w-1")
    assert node["metadata"]["annotations"][f"{PREFIX}/public-ip"] == "192.0.2.7"
    assert {one["type"]: one["status"] for one in node["status"]["conditions"]} == {
        "Ready": "True",
        "NetworkUnavailable": "False",
    }


@pytest.mark.parametrize(
    ("node", "change", "said"),
    [
        pytest.param(
            "w-2", {"metadata": {"annotations": {f"{PREFIX}/public-ip": "192.0.2.9"}}}, "runs on", id="another node"
        ),
        pytest.param("w-1", {"metadata": {"annotations": {"mine": "2"}}}, "own annotations", id="another annotation"),
        pytest.param("w-1", {"metadata": {"annotations": {"mine": None}}}, "own annotations", id="one that goes"),
        pytest.param("w-1", {"metadata": {"annotations": {"new": "1"}}}, "own annotations", id="one that comes"),
        pytest.param("w-1", {"metadata": {"labels": {"role": "x"}}}, "no label", id="a label"),
        pytest.param("w-1", {"metadata": {"finalizers": ["a.example/b"]}}, "no label", id="a finalizer"),
        pytest.param(
            "w-1", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "no label", id="a condition"
        ),
        pytest.param(
            "w-1",
            {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}},
            "no label",
            id="an address",
        ),
    ],
)
def test_it_changes_nothing_else(bed: ApiBed, node: str, change: dict[str, Any], said: str) -> None:
    before = bed.get("node", node)
    wait_for(lambda: "attested-flannel" in patch(bed, "w-1", "w-2", {"metadata": {"labels": {"a": "b"}}}))

    answer = patch(bed, "w-1", node, change)

    assert "attested-flannel" in answer, answer
    assert said in answer
    assert bed.get("node", node) == before


def test_a_token_that_is_bound_to_no_node_changes_nothing(bed: ApiBed) -> None:
    change = {"metadata": {"annotations": {f"{PREFIX}/public-ip": "192.0.2.9"}}}
    wait_for(lambda: "attested-flannel" in patch(bed, "w-1", "w-2", change))

    assert "flannel changes the Node that it runs on" in patch(bed, "", "w-1", change)
