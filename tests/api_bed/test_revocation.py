# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Revocation against a real API: what a revoked certificate writes (nothing) and reads, and who takes its place."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.admission import (
    AdmissionChange,
    plan_admission,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

    Machines = Callable[..., Machine]

KIND = "nodeidentities.attested-kubernetes.dev"
DENIED = "was revoked"
_SECONDS = 900
_TRIES = 5


def join(api: ApiBed, machine: Machine, user: str) -> None:
    """Get a ticket, keep its certificate as ``user`` of the bed, and register the node as a kubelet does."""
    material = machine.ask()
    (api.directory / f"{user}.crt").write_bytes(material.public.kubelet_certificate)
    (api.directory / f"{user}.key").write_bytes(material.kubelet_key.reveal())
    machine.disk_id = material.public.disk_id
    api.kubectl("create", "-f", "-", stdin=json.dumps(node(machine.name)), user=user)


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def revoke(api: ApiBed, name: str, **wish: str) -> None:
    """Do what the module node_admission does."""
    plan = plan_admission(api.get(KIND)["items"], AdmissionChange(name=name, admission=Admission.REVOKED, **wish))
    api.kubectl("patch", KIND, plan.name, "--type=merge", "-p", json.dumps(plan.patch))


def wait_for_denial(api: ApiBed, name: str, user: str) -> str:
    """Return what the API says once the admission policy has seen the revocation: a watch brings it, in its time.

    Each try writes another label, so that one which came through is no reason to write nothing. How long it takes is
    printed by one test and bound by none.
    """
    deadline, numbers = time.monotonic() + _SECONDS, count()
    while True:
        said = api.kubectl(*label(name, f"try-{next(numbers)}"), user=user, check=False)
        if DENIED in said or time.monotonic() > deadline:
            return said
        time.sleep(0.02)


def label(name: str, value: str = "b") -> tuple[str, ...]:
    return ("label", "node", name, f"a={value}", "--overwrite")


@pytest.fixture(scope="module", autouse=True)
def ready(api: ApiBed) -> None:
    """Wait until the API server has compiled the policies: asked with a machine that nobody is."""
    api.ca.issue(
        "probe",
        names=[(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, "system:node:probe")],
    )
    ek = "0f" * 32
    spec = {"ekSha256": ek, "nodeName": "probe", "role": "worker", "admission": "Revoked"}
    labels = {"attested-kubernetes.dev/revoked": "true"}
    metadata = {"name": f"ek-{ek[:20]}", "labels": labels}
    api.apply(
        {"apiVersion": "attested-kubernetes.dev/v1alpha1", "kind": "NodeIdentity", "metadata": metadata, "spec": spec}
    )
    said, deadline = "", time.monotonic() + _SECONDS
    while DENIED not in said and time.monotonic() < deadline:
        said = api.kubectl("create", "-f", "-", stdin=json.dumps(node("probe")), user="probe", check=False)
        time.sleep(0.2)
    assert DENIED in said


def test_whatever_a_revoked_machine_writes_is_denied(api: ApiBed, machines: Machines) -> None:
    machine, other = machines(), machines()
    join(api, machine, "bad")
    join(api, other, "good")
    assert "labeled" in api.kubectl(*label(machine.name), user="bad")
    revoke(api, machine.name)
    begun = time.monotonic()
    assert DENIED in wait_for_denial(api, machine.name, "bad")
    print(f"\nrevocation until the first denied write: {time.monotonic() - begun:.2f} s")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": machine.name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": machine.name, "leaseDurationSeconds": 40},
    }
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": machine.name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": machine.name},
        "source": {"component": "kubelet", "host": machine.name},
    }
    for number in range(_TRIES):  # once one write was denied none comes through
        assert DENIED in api.kubectl(*label(machine.name, f"later-{number}"), user="bad", check=False)
        for document in (lease, event):
            words = ("create", "--validate=false", "-f", "-")
            assert DENIED in api.kubectl(*words, stdin=json.dumps(document), user="bad", check=False)
    assert "labeled" in api.kubectl("label", "node", other.name, "a=c", user="good")


def test_its_node_is_not_made_again(api: ApiBed, machines: Machines) -> None:
    machine = machines()
    join(api, machine, "bad")
    revoke(api, machine.name)
    wait_for_denial(api, machine.name, "bad")
    api.kubectl("delete", "node", machine.name)
    said = api.kubectl("create", "-f", "-", stdin=json.dumps(node(machine.name)), user="bad", check=False)
    assert DENIED in said


def test_it_gets_no_ticket_and_no_disk_key_any_more(bed: ServiceBed, api: ApiBed, machines: Machines) -> None:
    machine = machines()
    join(api, machine, "bad")
    revoke(api, machine.name)
    for disk_id in ("", machine.disk_id):
        machine.disk_id = disk_id
        with pytest.raises(AttestedError):
            machine.ask()
        assert bed.last_refusal("key")["reason"] == "IDENTITY_REVOKED"


def test_a_certificate_of_kubeadm_is_known_by_the_nodes_name(api: ApiBed, machines: Machines) -> None:
    machine = machines()
    join(api, machine, "bad")
    names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{machine.name}")]
    api.ca.issue("older", names=names)
    assert "labeled" in api.kubectl(*label(machine.name), user="older")
    revoke(api, machine.name)
    assert DENIED in wait_for_denial(api, machine.name, "older")


READS = {
    "its own Node": ("get", "node/{name}"),
    "another Node": ("get", "node/{other}"),
    "all Nodes": ("get", "nodes"),
    "its own Lease": ("get", "lease", "{name}", "--namespace=kube-node-lease"),
    "another Lease": ("get", "lease", "{other}", "--namespace=kube-node-lease"),
    "its own CSINode": ("get", "csinode", "{name}"),
    "another CSINode": ("get", "csinode", "{other}"),
    "all services": ("get", "services", "--all-namespaces"),
    "all pods": ("get", "pods", "--all-namespaces"),
    "pods of its Node": ("get", "pods", "--all-namespaces", "--field-selector=spec.nodeName={name}"),
    "a secret of a pod of its Node": ("get", "secret", "mounted"),
    "another secret": ("get", "secret", "unmounted"),
    "a config map of a pod of its Node": ("get", "configmap", "mounted"),
    "another config map": ("get", "configmap", "unmounted"),
    "a claim of a pod of its Node": ("get", "persistentvolumeclaim", "mounted"),
    "another claim": ("get", "persistentvolumeclaim", "unmounted"),
    "the volume of a pod of its Node": ("get", "persistentvolume", "mounted"),
    "another volume": ("get", "persistentvolume", "unmounted"),
    "CSI drivers": ("get", "csidrivers"),
    "identities": ("get", KIND),
}
OF_ITS_PODS = {
    "a secret of a pod of its Node",
    "a config map of a pod of its Node",
    "a claim of a pod of its Node",
    "the volume of a pod of its Node",
}
DURING = {
    "its own Node",
    "its own Lease",
    "its own CSINode",
    "all services",
    "pods of its Node",
    "CSI drivers",
} | OF_ITS_PODS
"""What docs/machines.md says that it may read while its pods and its Node are still there."""

AFTER = DURING - OF_ITS_PODS - {"its own Node"}
"""... and what until its certificate ends, once both are gone (nothing collects Lease and CSINode in this bed)."""


def readable(api: ApiBed, name: str, other: str, user: str) -> set[str]:
    found = set()
    for what, words in READS.items():
        said = api.kubectl(*(word.format(name=name, other=other) for word in words), user=user, check=False)
        if "forbidden" not in said.lower() and "notfound" not in said.lower().replace(" ", ""):
            found.add(what)
    return found


def pod(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "example.org/none"}
    sources: dict[str, Any] = {
        "secret": {"secretName": "mounted"},
        "configMap": {"name": "mounted"},
        "persistentVolumeClaim": {"claimName": "mounted"},
    }
    volumes = [{"name": kind.lower(), kind: source} for kind, source in sources.items()]
    spec = {"nodeName": name, "containers": [container], "volumes": volumes, "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p-{name}", "namespace": "default"}, "spec": spec}


def storage(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a volume and the claim that it is bound to, as the controller of volumes leaves them."""
    mode, size = {"accessModes": ["ReadWriteOnce"]}, {"storage": "1Mi"}
    claim = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
    volume = {**mode, "capacity": size, "hostPath": {"path": "/none"}, "claimRef": claim, "storageClassName": ""}
    wanted = {**mode, "resources": {"requests": size}, "volumeName": name, "storageClassName": ""}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wanted},
    )


def kept_by_a_kubelet(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the two objects beside its Node that a kubelet keeps."""
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": name}}
    drivers = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "spec": {"drivers": []}}
    return (
        {**lease, "metadata": {"name": name, "namespace": "kube-node-lease"}},
        {**drivers, "metadata": {"name": name}},
    )


def furnish(api: ApiBed, name: str, other: str) -> None:
    """Put there what could be read: of each kind what the machine's pod mounts, and what it does not."""
    for part in ("mounted", "unmounted"):
        for kind in (("secret", "generic"), ("configmap",)):
            api.kubectl("create", *kind, part, "--from-literal=a=b", check=False)
        api.apply(*storage(part))
    api.apply(*kept_by_a_kubelet(name), *kept_by_a_kubelet(other))
    api.kubectl("create", "-f", "-", stdin=json.dumps(pod(name)))


def test_what_its_certificate_may_still_read(api: ApiBed, machines: Machines) -> None:
    """The measurement behind docs/machines.md."""
    machine, other = machines(), machines()
    join(api, machine, "bad")
    join(api, other, "good")
    furnish(api, machine.name, other.name)
    revoke(api, machine.name)
    wait_for_denial(api, machine.name, "bad")
    deadline = time.monotonic() + _SECONDS
    while (found := readable(api, machine.name, other.name, "bad")) != DURING and time.monotonic() < deadline:
        time.sleep(0.5)  # the node authorizer follows pods by a watch
    assert found == DURING
    api.kubectl("delete", "pod", f"p-{machine.name}", "--grace-period=0", "--force")
    api.kubectl("delete", "node", machine.name)
    while (found := readable(api, machine.name, other.name, "bad")) != AFTER and time.monotonic() < deadline:
        time.sleep(0.5)
    assert found == AFTER


def reviewed(api: ApiBed, group: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Let the revoked machine ask for a review, and return its answer."""
    document = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
    words = ("create", "--validate=false", "--output=json", "-f", "-")
    answer: dict[str, Any] = json.loads(api.kubectl(*words, stdin=json.dumps(document), user="bad"))["status"]
    return answer


def test_reviews_are_still_answered(api: ApiBed, machines: Machines) -> None:
    """They write nothing, and no admission policy can match them: whose a token is, and what somebody may do."""
    machine = machines()
    join(api, machine, "bad")
    revoke(api, machine.name)
    assert DENIED in wait_for_denial(api, machine.name, "bad")
    api.kubectl("create", "serviceaccount", "reviewed", check=False)
    token = api.kubectl("create", "token", "reviewed").strip()
    answer = reviewed(api, "authentication", "TokenReview", {"token": token})
    assert (answer["authenticated"], answer["user"]["username"]) == (True, "system:serviceaccount:default:reviewed")
    asked = {
        "user": "system:serviceaccount:default:reviewed",
        "resourceAttributes": {"verb": "get", "resource": "pods"},
    }
    assert reviewed(api, "authorization", "SubjectAccessReview", asked)["allowed"] is False


# ---- replacing a machine


def replaced(api: ApiBed, bed: ServiceBed, machines: Machines) -> tuple[Machine, Machine]:
    """Return a node's machine, revoked, and the one that an admin put in its place."""
    old, new = machines(), machines(enroll=False)
    join(api, old, "old")
    new.name = old.name
    revoke(api, old.name, replaced_by=f"ek-{new.tpm.ek.public.spki_sha256()[:20]}")
    new.enroll()
    return old, new


def test_a_new_machine_takes_the_nodes_name_and_its_disk(api: ApiBed, bed: ServiceBed, machines: Machines) -> None:
    old, new = replaced(api, bed, machines)
    first = old.identity()["status"]["diskId"]
    material = new.ask()
    assert (material.public.node_name, material.public.disk_id) == (old.name, first)
    assert new.identity()["status"]["diskId"] == first
    (api.directory / "new.crt").write_bytes(material.public.kubelet_certificate)
    (api.directory / "new.key").write_bytes(material.kubelet_key.reveal())
    assert DENIED in wait_for_denial(api, old.name, "old")
    assert "labeled" in api.kubectl("label", "node", old.name, "a=new", "--overwrite", user="new")


def test_the_old_machine_gets_nothing_any_more(api: ApiBed, bed: ServiceBed, machines: Machines) -> None:
    old, _new = replaced(api, bed, machines)
    with pytest.raises(AttestedError):
        old.ask()
    assert bed.last_refusal("key")["reason"] == "IDENTITY_REVOKED"


def test_without_the_admins_word_a_new_machine_gets_a_disk_of_its_own(
    api: ApiBed, bed: ServiceBed, machines: Machines
) -> None:
    """The name alone carries no disk over, nor does a claim."""
    old, new = machines(), machines(enroll=False)
    join(api, old, "old")
    revoke(api, old.name)
    new.name = old.name
    new.enroll()
    new.disk_id = old.identity()["status"]["diskId"]
    with pytest.raises(AttestedError):
        new.ask()
    assert bed.last_refusal("key")["reason"] == "DISK_ID_NOT_ASSIGNED"
    new.disk_id = ""
    assert new.ask().public.disk_id != old.identity()["status"]["diskId"]


def test_a_known_name_with_another_tpm_is_refused_and_told(api: ApiBed, bed: ServiceBed, machines: Machines) -> None:
    """S6: the board was changed, or somebody pretends."""
    known, pretender = machines(), machines(enroll=False)
    known.ask()
    pretender.name = known.name
    with pytest.raises(AttestedError):
        pretender.ask()
    line = bed.last_refusal("key")
    assert line["reason"] == "IDENTITY_NODE_TAKEN"
    assert known.identity()["metadata"]["name"] in line["detail"]
    name = f"ek-{pretender.tpm.ek.public.spki_sha256()[:20]}-identity-node-taken"
    deadline = time.monotonic() + _SECONDS
    while "NotFound" in api.kubectl("get", "event", "-n", "default", name, check=False):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    event = api.get("event", "-n", "default", name)
    assert (event["type"], event["reason"]) == ("Warning", "IdentityNodeTaken")
    assert known.name in event["message"]


# ---- the rules of the objects


@pytest.mark.parametrize(
    ("spec", "labels", "said"),
    [
        pytest.param({"admission": "Revoked"}, {}, "carries a label", id="revoked without the label"),
        pytest.param({"replacedBy": "ek-" + "1" * 20}, {}, "only a revoked identity", id="an heir of a live machine"),
    ],
)
def test_what_an_admin_cannot_write(api: ApiBed, machines: Machines, spec: Any, labels: Any, said: str) -> None:
    name = machines().identity()["metadata"]["name"]
    patch = json.dumps({"metadata": {"labels": labels}, "spec": spec})
    assert said in api.kubectl("patch", KIND, name, "--type=merge", "-p", patch, check=False)


def test_the_command_in_the_message_revokes(api: ApiBed, machines: Machines) -> None:
    """Whoever has kubectl alone is told what to type."""
    name = machines().identity()["metadata"]["name"]
    said = api.kubectl("patch", KIND, name, "--type=merge", "-p", '{"spec": {"admission": "Revoked"}}', check=False)
    patch = said.partition("-p '")[2].partition("'")[0]
    api.kubectl("patch", KIND, name, "--type=merge", "-p", patch)
    assert api.get(KIND, name)["spec"]["admission"] == "Revoked"


def test_the_label_and_the_heir_stay(api: ApiBed, machines: Machines) -> None:
    machine = machines()
    revoke(api, machine.name, replaced_by="ek-" + "1" * 20)
    name = machine.identity()["metadata"]["name"]
    assert "carries a label" in api.kubectl("label", KIND, name, "attested-kubernetes.dev/revoked-", check=False)
    other = json.dumps({"spec": {"replacedBy": "ek-" + "2" * 20}})
    assert "replacedBy is immutable" in api.kubectl("patch", KIND, name, "--type=merge", "-p", other, check=False)
