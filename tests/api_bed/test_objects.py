# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The custom resources hold their rules against the admin's own hand, and RBAC gives exactly what is needed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.rotation import kubectl
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import ServiceBed

RIGHTS = Path(__file__).parents[2] / "roles" / "key_service" / "files"
KIND = "nodeidentities.attested-kubernetes.dev"


def identity(seed: str, **spec: str) -> dict[str, Any]:
    """Return a good identity whose EK hash begins with ``seed``."""
    ek = (seed * 64)[:64]
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{ek[:20]}"},
        "spec": {"ekSha256": ek, "nodeName": f"n-{seed}", "role": "worker", "admission": "Approved", **spec},
    }


def revoked(seed: str, **spec: str) -> dict[str, Any]:
    """Return a revoked identity as the site writes it, with the label by which its writes are found."""
    document = identity(seed, admission="Revoked", **spec)
    document["metadata"]["labels"] = {"attested-kubernetes.dev/revoked": "true"}
    return document


def refused(api: ApiBed, document: dict[str, Any]) -> str:
    """Apply ``document`` and return the API's complaint; fails when it is accepted."""
    with pytest.raises(RuntimeError) as caught:
        api.apply(document)
    return str(caught.value)


def test_a_good_identity_is_accepted_and_may_be_revoked(api: ApiBed) -> None:
    api.apply(identity("a1"))
    api.apply(identity("a1", admission="Refused"))
    api.apply(identity("a1", admission="Approved"))
    api.apply(revoked("a1"))
    assert api.get(KIND, identity("a1")["metadata"]["name"])["spec"]["admission"] == "Revoked"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"role": "control-plane"}, "role is immutable", id="a worker becomes a control plane"),
        pytest.param({"nodeName": "cp-1"}, "nodeName is immutable", id="a machine takes another node's name"),
        pytest.param(
            {"ekSha256": "a2" * 10 + "ff" * 22}, "ekSha256 is immutable", id="another TPM under the same name"
        ),
    ],
)
def test_what_a_machine_is_cannot_change(api: ApiBed, change: dict[str, str], said: str) -> None:
    api.apply(identity("a2"))
    assert said in refused(api, identity("a2") | {"spec": identity("a2")["spec"] | change})


@pytest.mark.parametrize("admission", ["Approved", "Refused"])
def test_revoked_has_no_way_back_by_itself(api: ApiBed, bed: ServiceBed, admission: str) -> None:
    """The policy in force would have to say so, and there is one: the bed's."""
    assert bed.policy()["spec"].get("reinstated", []) == []
    api.apply(revoked("a3"))
    assert "a revoked identity stays revoked" in refused(api, identity("a3", admission=admission))


def test_a_revoked_identity_cannot_be_deleted(api: ApiBed) -> None:
    api.apply(revoked("a4"), identity("a5"))
    name = identity("a4")["metadata"]["name"]
    deadline = time.monotonic() + 20  # a new admission policy reaches the API server's compiler after a moment
    while time.monotonic() < deadline:
        if "cannot be deleted" in api.kubectl("delete", KIND, name, "--dry-run=server", check=False):
            break
        time.sleep(0.2)
    assert "a revoked identity cannot be deleted" in api.kubectl("delete", KIND, name, check=False)
    assert api.get(KIND, name)["spec"]["admission"] == "Revoked"
    api.kubectl("delete", KIND, identity("a5")["metadata"]["name"])


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(identity("b1") | {"metadata": {"name": "ek-0123456789abcdef0123"}}, id="a name of another EK"),
        pytest.param(identity("b1", ekSha256="B1" * 32), id="an EK hash in upper case"),
        pytest.param(identity("b1", role="admin"), id="an unknown role"),
        pytest.param(identity("b1", admission="Maybe"), id="an unknown admission"),
        pytest.param(identity("b1", nodeName="Node_1"), id="a name that Kubernetes does not take"),
    ],
)
def test_a_malformed_identity_is_refused(api: ApiBed, document: dict[str, Any]) -> None:
    refused(api, document)


def test_status_and_spec_have_one_writer_each(api: ApiBed) -> None:
    name = identity("c1")["metadata"]["name"]
    api.apply(identity("c1"))
    api.kubectl("patch", KIND, name, "--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Joined"}}')
    api.apply(identity("c1"))  # applying the site again leaves the phase alone
    assert api.get(KIND, name)["status"]["phase"] == "Joined"
    patch = '{"spec": {"admission": "Revoked"}, "status": {"phase": "Admitted"}}'
    api.kubectl("patch", KIND, name, "--subresource=status", "--type=merge", "-p", patch)
    assert api.get(KIND, name)["spec"]["admission"] == "Approved"


def test_the_api_server_tracks_the_status_of_an_identity_as_one_field(api: ApiBed) -> None:
    """To track each field would cost a tenth of the write of a ticket (docs/adr/0085)."""
    name = identity("c3")["metadata"]["name"]
    api.apply(identity("c3"))
    for status in ({"phase": "Admitted", "akName": "ab"}, {"tpm": {"clock": 1}}, {"phase": "Joined"}):
        patch = json.dumps({"status": status})
        api.kubectl("patch", KIND, name, "--subresource=status", "--type=merge", "-p", patch)
    found = json.loads(api.kubectl("get", KIND, name, "-o", "json", "--show-managed-fields"))
    assert found["status"] == {"phase": "Joined", "akName": "ab", "tpm": {"clock": 1}}
    tracked = [one["fieldsV1"] for one in found["metadata"]["managedFields"] if one.get("subresource") == "status"]
    assert tracked == [{"f:status": {}}]


def test_get_attested_reads_well(api: ApiBed) -> None:
    api.apply(identity("c2"))
    lines = [line.split() for line in api.kubectl("get", "attested").splitlines()]
    headers = [line[:7] for line in lines if line[:1] == ["NAME"]]
    assert ["NAME", "NODE", "ROLE", "ADMISSION", "PHASE", "PROFILE", "ATTESTED"] in headers
    assert any({"n-c2", "worker", "Approved"} <= set(line) for line in lines)


ALLOWED = {
    ("get", "nodeidentities.attested-kubernetes.dev"),
    ("list", "nodeidentities.attested-kubernetes.dev"),
    ("watch", "nodeidentities.attested-kubernetes.dev"),
    ("get", "measurementprofiles.attested-kubernetes.dev"),
    ("list", "measurementprofiles.attested-kubernetes.dev"),
    ("watch", "measurementprofiles.attested-kubernetes.dev"),
    ("patch", "measurementprofiles.attested-kubernetes.dev/status"),
    ("get", "clusterreleases.attested-kubernetes.dev"),
    ("list", "clusterreleases.attested-kubernetes.dev"),
    ("watch", "clusterreleases.attested-kubernetes.dev"),
    ("patch", "clusterreleases.attested-kubernetes.dev/status"),
    ("create", "nodeidentities.attested-kubernetes.dev"),  # those that wait: test_queue.py
    ("delete", "nodeidentities.attested-kubernetes.dev"),
    ("patch", "nodeidentities.attested-kubernetes.dev/status"),
    ("list", "joinattempts.attested-kubernetes.dev"),
    ("create", "joinattempts.attested-kubernetes.dev"),
    ("patch", "joinattempts.attested-kubernetes.dev"),
    ("delete", "joinattempts.attested-kubernetes.dev"),
    ("get", "nodes"),
    ("list", "nodes"),
    ("watch", "nodes"),
    ("patch", "nodes"),  # one taint and one condition: test_standing.py
    ("patch", "nodes/status"),
}
ASKED = [
    (verb, resource)
    for verb in ("get", "list", "watch", "create", "update", "patch", "delete")
    for resource in (
        "nodeidentities.attested-kubernetes.dev",
        "nodeidentities.attested-kubernetes.dev/status",
        "measurementprofiles.attested-kubernetes.dev",
        "measurementprofiles.attested-kubernetes.dev/status",
        "clusterreleases.attested-kubernetes.dev",
        "clusterreleases.attested-kubernetes.dev/status",
        "joinattempts.attested-kubernetes.dev",
        "events",
        "nodes",
        "nodes/status",
        "secrets",
        "configmaps",
        "pods",
        "serviceaccounts",
        "serviceaccounts/token",
        "certificatesigningrequests.certificates.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
    )
]


def test_the_key_services_user_has_exactly_its_verbs(api: ApiBed) -> None:
    reviews = [_review(verb, resource) for verb, resource in ASKED]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    words = ("create", "-f", "-", "-o", "jsonpath={.status.allowed}{'\\n'}")
    answers = api.kubectl(*words, stdin=text).split()
    granted = {asked for asked, answer in zip(ASKED, answers, strict=True) if answer == "true"}
    assert granted == ALLOWED


def test_what_init_applied_shows_no_difference_when_it_is_applied_again(api: ApiBed) -> None:
    """As the module cluster_objects asks before it applies; a difference here would be a change at each run."""
    for name in ("rbac.yml", "admission.yml"):
        words = ("diff", "--server-side", "--field-manager=attested-site", "-f", str(RIGHTS / name))
        assert api.kubectl(*words) == ""


def _review(verb: str, text: str) -> dict[str, Any]:
    path, _unused, sub = text.partition("/")
    resource, _unused, group = path.partition(".")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": sub}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "attested:key-service", "groups": ["system:authenticated"], "resourceAttributes": attributes},
    }


def test_the_key_services_user_cannot_read_a_secret(api: ApiBed) -> None:
    api.ca.issue("key-service", names=[(NameOID.COMMON_NAME, "attested:key-service")])
    api.kubectl("-n", "kube-system", "create", "secret", "generic", "bait", "--from-literal=a=b", check=False)
    said = api.kubectl("-n", "kube-system", "get", "secret", "bait", user="key-service", check=False)
    assert "forbidden" in said.lower()


PLUGIN = """apiVersion: example.org/v1
kind: Pool
metadata: {name: default, namespace: pod-network}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: agent, namespace: pod-network}
---
apiVersion: v1
kind: Namespace
metadata: {name: pod-network}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: pools, singular: pool, kind: Pool}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object}}
"""


def test_a_manifest_of_a_network_plugin_is_applied_in_one_run_whatever_its_order(api: ApiBed) -> None:
    """It brings the namespace and the kind of its other objects, as those of flannel and Calico do."""
    ours = kubectl(api)
    foreseen = ours.apply([PLUGIN], check_mode=True)
    assert (foreseen.changed, "pod-network" in foreseen.difference) == (True, True)
    assert "pod-network" not in api.kubectl("get", "namespaces", "--output=name")
    try:
        assert ours.apply([PLUGIN]).changed
        found = api.kubectl("get", "pools,serviceaccounts", "--namespace=pod-network", "--output=name").split()
        assert found == ["pool.example.org/default", "serviceaccount/agent"]
        assert not ours.apply([PLUGIN]).changed
    finally:
        api.kubectl("delete", "customresourcedefinition", "pools.example.org", "--ignore-not-found")
        api.kubectl("delete", "namespace", "pod-network", "--ignore-not-found", "--wait=false")
