# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S46: who may create Pods in one namespace reads the keys of a node, and on a control plane those of the cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.paths import StatePaths
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths, PodSecurity
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, why_not
from ansible_collections.attested.kubernetes.tests.support.guards import create, guarded, make_tenant, pod, secret_paths
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Iterator

THREAT = Threat(
    id="S46",
    title="A tenant's Pod reads the keys of its node",
    case="Kubernetes' default without Pod Security; Pods with hostPath and nodeName",
    bed="api",
    stops=(("kubeadm/spec.py", ""), ("roles/control_plane/templates/guards.yml.j2", "")),
)

TENANT, EXEMPT = "tenant", "kube-flannel"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
BY_POLICY = "ValidatingAdmissionPolicy"
BY_LEVEL = "violates PodSecurity"


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiBed]:
    """A cluster as we make it, with a namespace of a tenant and one that the site exempts."""
    if reason := why_not():
        pytest.skip(reason)
    with guarded(tmp_path_factory.mktemp("held"), PodSecurity(exempt=(EXEMPT,))) as bed:
        for name in (TENANT, EXEMPT):
            make_tenant(bed, name)
        yield bed


@pytest.fixture(scope="module")
def unheld(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiBed]:
    """A cluster whose site turned Pod Security off: our policies are alone."""
    if reason := why_not():
        pytest.skip(reason)
    with guarded(tmp_path_factory.mktemp("unheld"), PodSecurity(level="privileged")) as bed:
        make_tenant(bed, TENANT)
        yield bed


def mounting(path: str, *, read_only: bool = True, where: str = "containers") -> dict[str, Any]:
    """Return what a Pod says beside its own to have a path of its node."""
    container = {
        "name": "b",
        "image": "example.invalid/b:1",
        "volumeMounts": [{"name": "node", "mountPath": "/node", "readOnly": read_only}],
    }
    found = {"volumes": [{"name": "node", "hostPath": {"path": path}}], where: [container]}
    return found if where == "containers" else {**pod()["spec"], **found}


def asked(bed: ApiBed, namespace: str = TENANT, **spec: Any) -> str:
    return create(bed, pod(namespace, **spec), user=f"{namespace}-owner")


@pytest.mark.parametrize(
    ("spec", "stop"),
    [
        pytest.param(
            {
                **mounting("/"),
                "nodeName": "cp-1",
                "hostPID": True,
                "tolerations": [{"operator": "Exists"}],
            },
            BY_LEVEL,
            id="all of it",
        ),
        pytest.param(mounting("/opt"), BY_LEVEL, id="a path of the node that holds nothing"),
        pytest.param({"hostPID": True}, BY_LEVEL, id="the processes of the node"),
        pytest.param({"hostIPC": True}, BY_LEVEL, id="its memory"),
        pytest.param({"hostNetwork": True}, BY_LEVEL, id="its network"),
        pytest.param(
            {"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 9090, "hostPort": 9090}]}]},
            BY_LEVEL,
            id="a port of the node",
        ),
        pytest.param(
            {"containers": [{"name": "a", "image": "i", "securityContext": {"privileged": True}}]},
            BY_LEVEL,
            id="a container that may do everything",
        ),
        pytest.param({"nodeName": "cp-1"}, BY_POLICY, id="a control plane by its name"),
        pytest.param({"nodeName": "w-1"}, BY_POLICY, id="any node by its name"),
        pytest.param({"tolerations": [{"key": CONTROL_PLANE, "operator": "Exists"}]}, BY_POLICY, id="its taint"),
    ],
)
def test_a_tenant_gets_nothing_of_a_node(held: ApiBed, spec: dict[str, Any], stop: str) -> None:
    assert "created" in asked(held)
    assert stop in asked(held, **spec)


def test_the_built_in_role_gives_no_way_around(held: ApiBed) -> None:
    """What would lift these rules, or place a Pod or write a Service's address without them, is not in it."""
    owner, here = f"{TENANT}-owner", f"--namespace={TENANT}"
    assert held.kubectl("auth", "can-i", "create", "pods", here, user=owner).strip() == "yes"
    for deed in (
        ("update", "namespaces"),
        ("create", "pods", "--subresource=binding"),
        ("create", "bindings"),
        ("create", "persistentvolumes"),
        ("create", "endpointslices.discovery.k8s.io"),
        ("update", "services", "--subresource=status"),
        ("update", "nodes"),
    ):
        assert held.kubectl("auth", "can-i", *deed, here, user=owner, check=False).split()[0] == "no", deed


def test_a_namespace_that_is_trusted_runs_what_it_needs(held: ApiBed) -> None:
    spec = {**mounting("/run/flannel", read_only=False), "hostNetwork": True, "tolerations": [{"operator": "Exists"}]}
    assert "created" in asked(held, EXEMPT, **spec)
    assert "created" in create(held, pod("kube-system", nodeName="cp-1", **spec))


@pytest.mark.parametrize("path", ["/", "/etc", "/var", "/var/lib", *secret_paths()])
def test_no_path_that_leads_to_secrets_is_mounted(unheld: ApiBed, path: str) -> None:
    """By nobody outside of kube-system, an admin too: the namespace counts."""
    assert "created" in asked(unheld, **mounting("/opt/data"))
    for written in (path, f"{path}/".replace("//", "/"), f"{path}/x" if path in secret_paths() else path):
        assert "hold secrets" in asked(unheld, **mounting(written)), written
        assert "hold secrets" in create(unheld, pod(**mounting(written)))


@pytest.mark.parametrize(
    "path", ["//etc/kubernetes", "/opt/./../etc", "/opt//x", "/etc/./kubernetes", "/./etc", "/opt/.", "etc/kubernetes"]
)
def test_a_path_is_written_in_one_way(unheld: ApiBed, path: str) -> None:
    said = asked(unheld, **mounting(path))
    assert "without '//' and '/./'" in said or "must not contain '..'" in said


@pytest.mark.parametrize("path", ["/etc/kubernetes-dashboard", "/var/lib/kubelet-plugins", "/opt/run", "/var/log/pods"])
def test_a_path_that_only_looks_like_one_is_free(unheld: ApiBed, path: str) -> None:
    assert "created" in asked(unheld, **mounting(path))


@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_no_path_of_a_node_is_written(unheld: ApiBed, where: str) -> None:
    """Who may write one lays a link into it that leads to what no path may name."""
    assert "created" in asked(unheld, **mounting("/opt/data", where=where))
    assert "mounted read-only" in asked(unheld, **mounting("/opt/data", read_only=False, where=where))


def test_a_container_that_is_added_later_writes_none_either(unheld: ApiBed) -> None:
    document = pod(TENANT, **mounting("/opt/data"))
    document["metadata"] = {"name": "debugged", "namespace": TENANT}
    unheld.kubectl("create", "-f", "-", stdin=json.dumps(document))
    try:
        for read_only, words in ((True, "patched"), (False, "mounted read-only")):
            added = {
                "name": "late",
                "image": "i",
                "volumeMounts": [{"name": "node", "mountPath": "/n", "readOnly": read_only}],
            }
            patch = json.dumps({"spec": {"ephemeralContainers": [added]}})
            words_of = ("patch", "pod", "debugged", f"--namespace={TENANT}", "--subresource=ephemeralcontainers")
            said = unheld.kubectl(*words_of, f"--patch={patch}", "--dry-run=server", check=False)
            assert words in said
    finally:
        unheld.kubectl("delete", "pod", "debugged", f"--namespace={TENANT}", "--wait=false")


@pytest.mark.parametrize(
    "toleration",
    [
        pytest.param({"operator": "Exists"}, id="every taint"),
        pytest.param({"operator": "Exists", "effect": "NoSchedule"}, id="every taint of this effect"),
        pytest.param({"key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"}, id="its taint"),
        pytest.param({"key": CONTROL_PLANE, "operator": "Equal", "value": ""}, id="its taint by its value"),
        pytest.param({"key": "node-role.kubernetes.io/master", "operator": "Exists"}, id="its former taint"),
    ],
)
def test_the_taint_of_control_planes_is_tolerated_neither_at_first_nor_later(
    unheld: ApiBed, toleration: dict[str, str]
) -> None:
    """A Pod that waits may get a toleration by an update."""
    other = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert "created" in asked(unheld, tolerations=[other, {"operator": "Exists", "effect": "NoExecute"}])
    assert "tolerate the taint" in asked(unheld, tolerations=[toleration])
    document = pod(TENANT)
    document["metadata"] = {"name": "waits", "namespace": TENANT}
    unheld.kubectl("create", "-f", "-", stdin=json.dumps(document), user="tenant-owner")
    try:
        present = unheld.get("pod", "waits", f"--namespace={TENANT}")["spec"]["tolerations"]
        for more, words in ((other, "patched"), (toleration, "tolerate the taint")):
            patch = json.dumps({"spec": {"tolerations": [*present, more]}})
            asked_for = ("patch", "pod", "waits", f"--namespace={TENANT}", "--type=merge", f"--patch={patch}")
            assert words in unheld.kubectl(*asked_for, "--dry-run=server", user="tenant-owner", check=False)
    finally:
        unheld.kubectl("delete", "pod", "waits", f"--namespace={TENANT}", "--wait=false")


def test_a_pod_that_was_there_before_these_rules_may_still_be_changed(unheld: ApiBed) -> None:
    """Its controllers write labels and finalizers; what it is stays as it was."""
    document = pod("kube-system", tolerations=[{"operator": "Exists"}], nodeName="cp-1")
    document["metadata"] = {"name": "old", "namespace": "kube-system"}
    unheld.kubectl("create", "-f", "-", stdin=json.dumps(document))
    unheld.kubectl("label", "pod", "old", "--namespace=kube-system", "a=b")
    assert "patched" in unheld.kubectl(
        "patch", "pod", "old", "--namespace=kube-system", '--patch={"metadata": {"labels": {"a": "c"}}}'
    )


@pytest.mark.parametrize("kind", ["hostPath", "local"])
def test_no_volume_of_a_storage_admin_leads_there(unheld: ApiBed, kind: str) -> None:
    """No rule for Pods looks at what a PersistentVolumeClaim brings."""
    affinity = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["w-1"]}

    def volume(path: str) -> str:
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            kind: {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [affinity]}]}},
        }
        document = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"generateName": "v-"}, "spec": spec}
        return create(unheld, document)

    assert "created" in volume("/srv/data")
    assert "created" in volume("/dev/disk/by-id/x")
    for path in ("/", "/etc/kubernetes/", "/var/lib", "/var/lib/etcd/member"):
        assert "hold secrets" in volume(path), path
    assert "without '//'" in volume("/etc//kubernetes")


def test_who_may_bind_is_no_scheduler_by_it(unheld: ApiBed) -> None:
    """The right for it is in no built-in role of a namespace; given to a tenant it places Pods on control planes."""
    role = ("create", "role", "binder", f"--namespace={TENANT}", "--verb=create", "--resource=pods/binding,bindings")
    unheld.kubectl(*role)
    unheld.kubectl(
        *("create", "rolebinding", "binder", "--role=binder", f"--serviceaccount={TENANT}:owner", "-n", TENANT)
    )
    target = {"apiVersion": "v1", "kind": "Node", "name": "cp-1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waits-not"}, "target": target}
    path = f"/api/v1/namespaces/{TENANT}/pods/waits-not/binding"
    words = ("create", f"--raw={path}", "-f", "-")
    said = unheld.kubectl(*words, stdin=json.dumps(binding), user="tenant-owner", check=False)
    assert "the scheduler says" in said


def test_the_paths_are_those_where_this_collection_keeps_secrets() -> None:
    """A directory that gets keys and is not below one of them fails here."""
    paths, state = KubernetesPaths(), StatePaths()
    kept = (paths.kubernetes, paths.kubelet, paths.state, state.mount_point, state.journal, *state.directories)
    for path in (str(one) for one in kept):
        assert any(f"{path}/".startswith(f"{secret}/") for secret in secret_paths()), path
