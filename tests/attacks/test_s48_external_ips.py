# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S48: a Service with the address of a node takes its ports, and whoever has the kubelet's reads `kubectl exec`."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import load_documents
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import render_init
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import (
    ClusterSpec,
    KubernetesPaths,
    NodeSpec,
    PodSecurity,
)
from ansible_collections.attested.kubernetes.tests.support.api_bed import Authority, why_not
from ansible_collections.attested.kubernetes.tests.support.guards import create, guarded, make_tenant
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

THREAT = Threat(
    id="S48",
    title="A Service takes the port of a node, and reads exec",
    case="CVE-2020-8554",
    bed="api",
    stops=(("kubeadm/spec.py", ""), ("kubeadm/render.py", "")),
)

TENANT, NODE = "tenant", "w-1"
SECRET = "what the command printed"
AUTHORITY = "kubelet-certificate-authority"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiBed]:
    """A cluster as we make it, with a tenant."""
    if reason := why_not():
        pytest.skip(reason)
    with guarded(tmp_path_factory.mktemp("services"), PodSecurity()) as bed:
        make_tenant(bed, TENANT)
        yield bed


def service(port: int = 9090, **spec: Any) -> dict[str, Any]:
    ports = [{"port": port, "targetPort": 8080}]
    metadata = {"generateName": "taker-", "namespace": TENANT}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports, **spec}}


@pytest.mark.parametrize("port", [9090, 9091, 10250, 6443])
def test_a_service_with_an_address_of_a_node_is_refused(cluster: ApiBed, port: int) -> None:
    assert "created" in create(cluster, service(port), user=f"{TENANT}-owner")
    taking = service(port, externalIPs=["10.0.0.21"])
    assert "Use of external IPs is denied" in create(cluster, taking, user=f"{TENANT}-owner")
    assert "Use of external IPs is denied" in create(cluster, taking)


def test_a_service_that_is_there_gets_none(cluster: ApiBed) -> None:
    document = service()
    document["metadata"] = {"name": "there", "namespace": TENANT}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(document))
    words = ("patch", "service", "there", f"--namespace={TENANT}")
    assert "patched" in cluster.kubectl(*words, '--patch={"spec": {"sessionAffinity": "ClientIP"}}')
    said = cluster.kubectl(*words, '--patch={"spec": {"externalIPs": ["10.0.0.21"]}}', user="tenant-owner", check=False)
    assert "Use of external IPs is denied" in said


class Kubelet(http.server.BaseHTTPRequestHandler):
    """Answers what a kubelet is asked for the log of a container."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(SECRET.encode())

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


def serving(authority: Authority, name: str) -> http.server.HTTPServer:
    """Return what answers where a node's kubelet should, with a certificate of ``authority`` for 127.0.0.1."""
    authority.issue(name, names=[(NameOID.COMMON_NAME, f"system:node:{NODE}")], server=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.directory / f"{name}.crt", authority.directory / f"{name}.key")
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kubelet)
    found.socket = context.wrap_socket(found.socket, server_side=True)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    return found


def read_log(bed: ApiBed, port: int) -> str:
    """Let the API server ask whoever answers at the node's address."""
    endpoints = {"kubeletEndpoint": {"Port": port}}
    status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": endpoints}
    patch = json.dumps({"status": status})
    bed.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", f"--patch={patch}")
    return bed.kubectl("logs", "--namespace=kube-system", "asked", check=False)


def test_a_kubelet_without_a_certificate_of_the_cluster_is_told_nothing(cluster: ApiBed, tmp_path: Path) -> None:
    """The API server is told by the arguments that init renders whom it has to believe."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(node))
    asked = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asked", "namespace": "kube-system"},
        "spec": {"nodeName": NODE, "containers": [{"name": "a", "image": "i"}]},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(asked))
    told = rendered()
    assert told[AUTHORITY] == "/etc/kubernetes/pki/ca.crt"
    cluster.ca.issue("client", names=[(NameOID.COMMON_NAME, "kube-apiserver-kubelet-client")])
    own = {f"kubelet-client-{kind}": str(cluster.directory / f"client.{end}") for kind, end in CLIENT.items()}
    cluster.restart({**own, AUTHORITY: str(cluster.directory / "ca.crt")})
    true, false = serving(cluster.ca, "kubelet"), serving(Authority.make(tmp_path), "taker")
    try:
        assert SECRET in read_log(cluster, true.server_port)
        said = read_log(cluster, false.server_port)
        assert "signed by unknown authority" in said
        assert SECRET not in said
    finally:
        for one in (true, false):
            one.shutdown()
            one.server_close()


CLIENT = {"certificate": "crt", "key": "key"}


def rendered() -> dict[str, str]:
    """Return what init tells the API server of a cluster whose site says nothing of kubelets' certificates."""
    cluster = ClusterSpec(kubernetes_version="1.35.4", cluster_name="prod", api_endpoint="api.prod.example:6443")
    text = render_init(cluster, NodeSpec(name="cp-1", node_ip="10.0.0.11"), paths=KubernetesPaths()).decode()
    found = next(one for one in load_documents(text) if one["kind"] == "ClusterConfiguration")
    return {one["name"]: one["value"] for one in found["apiServer"]["extraArgs"]}
