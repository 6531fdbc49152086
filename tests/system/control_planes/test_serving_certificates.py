# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates that running kubelets serve with: of the cluster, for the addresses of their identities, and demanded.

A control plane and a worker, in a cluster whose site says nothing of it. Looked at with openssl and
kubectl. The tests are in the order of one lab's life and share it.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
from functools import partial
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.road import road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Road

pytestmark = pytest.mark.slow

NODES = {"cp-1": "10.89.7.11", "w-1": "10.89.7.21"}
WORDS = ("-e", '{"lab_workers": 1}')
CA = "/etc/kubernetes/pki/ca.crt"
SERVED = "/var/lib/kubelet/pki/kubelet-server-current.pem"
SECONDS = 600
"""A kubelet asks again after longer and longer pauses; its first request waits for its evidence."""


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster."""
    lab = "attested-serving:127.89.0"
    with road_through("lab", "init", "node", of=lab, instead="ATTESTED_SERVING_LAB", words=WORDS) as one:
        yield one


def shake_hands(road: Road, node: str) -> str:
    """Return what openssl on the control plane says of a kubelet's certificate, which has to be good."""
    options = f"-CAfile {CA} -verify_ip {NODES[node]} -verify_return_error -showcerts"
    return road.inside("cp-1", "sh", "-c", f"openssl s_client -connect {NODES[node]}:10250 {options} </dev/null 2>&1")


def is_believed(road: Road, node: str) -> bool:
    """Whether openssl finds the kubelet's certificate good under the cluster's CA."""
    options = f"-CAfile {CA} -verify_ip {NODES[node]} -verify_return_error"
    line = f"openssl s_client -connect {NODES[node]}:10250 {options} </dev/null >/dev/null 2>&1 && echo good"
    return road.inside("cp-1", "sh", "-c", line, check=False) == "good\n"


def reaches(road: Road, node: str) -> str:
    """Return what the API server says of the kubelet's health, asked at the kubelet; both streams."""
    kubectl = f"kubectl --kubeconfig=/etc/kubernetes/admin.conf get --raw=/api/v1/nodes/{node}/proxy/healthz 2>&1"
    return road.inside("cp-1", "sh", "-c", kubectl, check=False)


def pod_on(road: Road, node: str, prefix: str) -> str:
    """Return a Pod of the system on a node."""
    found = road.kubectl("get", "pods", "-n=kube-system", f"--field-selector=spec.nodeName={node}", "--output=name")
    return next(pod for pod in found.split() if pod.startswith(f"pod/{prefix}"))


@pytest.mark.parametrize("node", NODES)
def test_a_kubelet_serves_with_a_certificate_of_the_cluster_for_the_addresses_of_its_identity(
    road: Road, node: str
) -> None:
    """Names and addresses are those of the site and no others; it ends when the kubelet's other one would."""
    wait_for(partial(is_believed, road, node), seconds=SECONDS)
    served = x509.load_pem_x509_certificate(shake_hands(road, node).encode())
    identities = json.loads(road.kubectl("get", "nodeidentities", "--output=json"))["items"]
    (spec,) = [one["spec"] for one in identities if one["spec"]["nodeName"] == node]
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == spec["addresses"] == [NODES[node]]
    assert names.get_values_for_type(x509.DNSName) == [node]
    assert [one.value for one in served.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [f"system:node:{node}"]
    usage = served.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert served.not_valid_after_utc - served.not_valid_before_utc <= dt.timedelta(hours=73)


def test_every_request_was_decided_and_none_by_hand(road: Road) -> None:
    """Approved by a key service: the user that the API server saw is in its audit log, and nothing is left waiting."""
    requests = json.loads(road.kubectl("get", "csr", "--output=json"))["items"]
    assert {one["spec"]["signerName"] for one in requests} == {"kubernetes.io/kubelet-serving"}
    assert {one["status"]["conditions"][0]["type"] for one in requests} == {"Approved"}
    log = 'grep -h \'"subresource":"approval"\' /var/log/kubernetes/audit/*.log'
    callers = {json.loads(line)["user"]["username"] for line in road.inside("cp-1", "sh", "-c", log).splitlines()}
    assert callers == {"attested:key-service"}


@pytest.mark.parametrize(("node", "prefix"), [("cp-1", "etcd"), ("w-1", "kube-proxy")])
def test_logs_and_exec_work_with_verification(road: Road, node: str, prefix: str) -> None:
    """The API server is told by whose CA it has to believe a kubelet, and does."""
    manifest = road.inside("cp-1", "cat", "/etc/kubernetes/manifests/kube-apiserver.yaml")
    assert f"--kubelet-certificate-authority={CA}" in manifest
    assert road.kubectl("logs", "--namespace=kube-system", "--tail=5", pod_on(road, node, prefix)).strip()
    assert reaches(road, node) == "ok"


def test_a_command_runs_in_a_pod(road: Road) -> None:
    """Upgraded connections go the same way."""
    said = road.kubectl("exec", "--namespace=kube-system", "etcd-cp-1", "--", "etcdctl", "version")
    assert "etcdctl version" in said


def test_a_kubelet_that_shows_a_certificate_of_its_own_is_not_believed(road: Road) -> None:
    """Or nobody looks; with that file gone it asks again, and is believed again."""
    kept = road.inside("w-1", "readlink", "-f", SERVED).strip()
    road.inside("w-1", "sh", "-c", f"rm {SERVED} && cat > {SERVED} && chmod 600 {SERVED}", given=own_certificate("w-1"))
    road.inside("w-1", "systemctl", "restart", "kubelet")
    try:
        wait_for(lambda: "unknown authority" in reaches(road, "w-1"), seconds=SECONDS)
        assert not is_believed(road, "w-1")
    finally:
        road.inside("w-1", "rm", "-f", SERVED, kept)
        road.inside("w-1", "systemctl", "restart", "kubelet")
    wait_for(lambda: reaches(road, "w-1") == "ok", seconds=SECONDS)
    assert is_believed(road, "w-1")


def own_certificate(node: str) -> bytes:
    """Return key and certificate that a node has signed itself, for its own name and address."""
    key = ec.generate_private_key(ec.SECP256R1())
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes")
    name = x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}")])
    names = x509.SubjectAlternativeName([x509.DNSName(node), x509.IPAddress(ipaddress.ip_address(NODES[node]))])
    now = dt.datetime.now(dt.UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(hours=1))
    built = built.not_valid_after(now + dt.timedelta(hours=72)).add_extension(names, critical=False)
    signed = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False).sign(
        key, hashes.SHA256()
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return signed.public_bytes(encoding) + private
