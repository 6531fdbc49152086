# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S56: root of a worker, with its kubelet's credential, writes what is read as ours or as another node's."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import load_documents
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import render_init
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import (
    ClusterSpec,
    KubernetesPaths,
    NodeSpec,
)
from ansible_collections.attested.kubernetes.tests.api_bed.test_standing import join, patch
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine

THREAT = Threat(
    id="S56",
    title="A kubelet writes beyond its own",
    case="found here: NodeRestriction looks at names, not at what is said",
    bed="api",
    stops=(("roles/key_service/files/admission.yml", ""), ("kubeadm/render.py", "")),
)

DOMAIN = "attested-kubernetes.dev"
OWN, OTHER = "192.0.2.21", "192.0.2.22"


@pytest.fixture
def node(api: ApiBed, machines: Callable[..., Machine]) -> Machine:
    """A joined machine whose site wrote its address, and whose kubelet has its credential."""
    machine = machines(enroll=False)
    machine.enroll(addresses=[OWN])
    join(api, machine)
    give_credential(api, machine.name)
    yield machine
    api.kubectl("delete", "nodeidentity", machine.identity()["metadata"]["name"], check=False)


def give_credential(api: ApiBed, name: str) -> None:
    names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{name}")]
    api.ca.issue(name, names=names)


def event(node: str, namespace: str = "default", **changes: Any) -> dict[str, Any]:
    """Return an Event as a kubelet writes them, of a Pod, with ``changes``."""
    metadata = {"generateName": "e-", "namespace": namespace}
    about = {"kind": "Pod", "namespace": namespace, "name": "a"}
    source = {"component": "kubelet", "host": node}
    reporter = {"reportingComponent": "kubelet", "reportingInstance": node}
    document = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, "source": source}
    return {**document, "reason": "Started", "message": "m", "type": "Normal", **reporter, **changes}


def write(api: ApiBed, document: dict[str, Any], user: str) -> str:
    return api.kubectl("create", "-f", "-", user=user, stdin=json.dumps(document), check=False)


def test_a_kubelet_tells_of_its_pods_and_of_itself(api: ApiBed, node: Machine) -> None:
    own = {"kind": "Node", "name": node.name, "uid": node.name}
    for namespace in ("default", "kube-system"):
        assert "created" in write(api, event(node.name, namespace), node.name)
    assert "created" in write(api, event(node.name, involvedObject=own), node.name)


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"source": {"component": "attested-key-service"}}, id="our source"),
        pytest.param({"reportingComponent": "attested-key-service"}, id="our name as who reports"),
        pytest.param({"source": {"component": "Attested"}}, id="a source that looks like ours"),
        pytest.param({"source": {"component": "kubelet", "host": "cp-1"}}, id="another node's kubelet"),
        pytest.param({"source": {"component": "default-scheduler"}}, id="another component"),
        pytest.param({"reportingInstance": "cp-1"}, id="another node that reports"),
    ],
)
def test_an_event_names_who_wrote_it(api: ApiBed, node: Machine, namespace: str, changes: dict[str, Any]) -> None:
    assert "created" in write(api, event(node.name, namespace), node.name)
    said = write(api, event(node.name, namespace, **changes), node.name)
    assert "an Event" in said
    assert "denied" in said


def test_an_event_by_the_newer_api_is_the_same(api: ApiBed, node: Machine) -> None:
    document = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "e-", "namespace": "kube-system"},
        "eventTime": "2026-11-25T00:00:00.000000Z",
        "reportingController": "attested-key-service",
        "reportingInstance": "x",
        "action": "a",
        "reason": "EvidenceGood",
        "type": "Normal",
        "regarding": {"kind": "Pod", "namespace": "kube-system", "name": "a"},
    }
    api.kubectl("create", "-f", "-", stdin=json.dumps({**document, "reportingController": "kubelet"}))
    assert re.search("names us as its source|itself as the source", write(api, document, node.name))  # of two policies


def test_an_event_of_another_node_is_refused(api: ApiBed, node: Machine) -> None:
    about = {"kind": "Node", "name": "cp-1", "uid": "cp-1"}
    assert "tells of no other node" in write(api, event(node.name, involvedObject=about), node.name)


def test_an_event_of_ours_is_changed_by_nobody_else(api: ApiBed, node: Machine) -> None:
    """Nor does anybody else write one: a person reads it as what the key service found."""
    theirs = event(node.name, source={"component": "attested-key-service"}, reportingComponent="")
    assert "names us as its source" in write(api, theirs, "admin")
    found = [one for one in api.get("events", "--namespace=default")["items"] if "attested" in str(one["source"])]
    for user in ("admin", node.name):
        for one in found[:1]:
            words = ("patch", "event", one["metadata"]["name"], "--namespace=default", '--patch={"message": "x"}')
            said = api.kubectl(*words, user=user, check=False)
            assert "denied" in said or "forbidden" in said  # a kubelet may not even read one


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("name", [f"{DOMAIN}/posture", f"x.{DOMAIN}/posture", "attested", "example.com/ATTESTED"])
def test_a_node_says_nothing_of_its_evidence_on_itself(api: ApiBed, node: Machine, kind: str, name: str) -> None:
    def said(value: str | None, key: str = name) -> str:
        return patch(api, node.name, node.name, {"metadata": {kind: {key: value}}})

    assert said("b", "example.com/a") == "200"
    assert "speaks of attestation" in said("root")
    api.kubectl({"labels": "label", "annotations": "annotate"}[kind], "node", node.name, f"{name}=boot")
    assert "speaks of attestation" in said("root")
    assert "speaks of attestation" in said(None)
    assert said("c", "example.com/a") == "200"


def test_nor_does_one_that_makes_its_object(api: ApiBed, node: Machine) -> None:
    api.kubectl("delete", "node", node.name)
    plain = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}}
    labelled = {**plain, "metadata": {"name": node.name, "labels": {f"{DOMAIN}/posture": "root"}}}
    conditioned = {**plain, "status": {"conditions": [{"type": "attested", "status": "True"}]}}
    elsewhere = {**plain, "status": {"addresses": [{"type": "InternalIP", "address": OTHER}]}}
    assert "speaks of attestation" in write(api, labelled, node.name)
    assert "no conditions but" in write(api, conditioned, node.name)
    assert "are those in its identity" in write(api, elsewhere, node.name)
    here = {"addresses": [{"type": "InternalIP", "address": OWN}, {"type": "Hostname", "address": node.name}]}
    assert "created" in write(api, {**plain, "status": here}, node.name)


@pytest.mark.parametrize("kind", ["attested", "Attested ", "\u0410ttested", "Attestation", f"{DOMAIN}/Attested"])
def test_a_node_has_no_condition_that_looks_like_ours(api: ApiBed, node: Machine, kind: str) -> None:
    def said(name: str) -> str:
        change = {"status": {"conditions": [{"type": name, "status": "True", "reason": "EvidenceGood"}]}}
        return patch(api, node.name, f"{node.name}/status", change, "strategic-merge")

    for name in ("Ready", "PIDPressure", "StateDiskCorrupt"):
        assert said(name) == "200"
    assert "no conditions but" in said(kind)


def addresses(*said: tuple[str, str]) -> dict[str, Any]:
    return {"status": {"addresses": [{"type": kind, "address": one} for kind, one in said]}}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param((("InternalIP", OTHER),), id="another node's"),
        pytest.param((("InternalIP", OWN), ("ExternalIP", OTHER)), id="another node's beside its own"),
        pytest.param((("InternalIP", "192.0.2.99"),), id="nobody's"),
        pytest.param((("Hostname", "cp-1"),), id="another node's name"),
        pytest.param((("InternalDNS", "cp-1.example"),), id="a name"),
    ],
)
def test_a_node_is_where_the_site_says(api: ApiBed, node: Machine, said: tuple[tuple[str, str], ...]) -> None:
    """API servers send exec and logs there, and whoever answers reads them."""
    good = addresses(("InternalIP", OWN), ("Hostname", node.name))
    assert patch(api, node.name, f"{node.name}/status", good) == "200"
    assert "are those in its identity" in patch(api, node.name, f"{node.name}/status", addresses(*said))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert patch(api, node.name, f"{node.name}/status", ready, "strategic-merge") == "200"


def test_a_node_of_which_the_site_says_no_address_takes_no_others(
    api: ApiBed, node: Machine, machines: Callable[..., Machine]
) -> None:
    queued = machines("q")
    join(api, queued)
    give_credential(api, queued.name)
    path = f"{queued.name}/status"
    assert patch(api, queued.name, path, addresses(("InternalIP", OTHER))) == "200"
    assert "is no other node's" in patch(api, queued.name, path, addresses(("InternalIP", OWN)))
    assert "is no other node's" in patch(api, queued.name, path, addresses(("Hostname", node.name)))


def test_kube_proxy_tells_no_stranger_whether_it_is_well() -> None:
    cluster = ClusterSpec(kubernetes_version="1.35.4", cluster_name="prod", api_endpoint="api.prod.example:6443")
    text = render_init(cluster, NodeSpec(name="cp-1", node_ip="10.0.0.11"), paths=KubernetesPaths()).decode()
    (proxy,) = [one for one in load_documents(text) if one["kind"] == "KubeProxyConfiguration"]
    assert proxy["healthzBindAddress"] == "127.0.0.1:10256"
