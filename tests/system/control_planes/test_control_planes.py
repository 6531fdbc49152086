# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three control planes and a worker, made by the playbooks over ssh: joined by ticket, rebooted, lost, reset and back.

The tests are in the order of one lab's life and share it. They look with etcdctl, kubectl and sha256sum.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.road import Road, assert_one_lock_event, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_CONTROL_PLANES_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

MADE = ("lab", "init", "node")
MEMBERS = {"cp-1": "10.89.7.11", "cp-2": "10.89.7.12", "cp-3": "10.89.7.13"}
WORKER = "w-1"
WORDS = ("-e", '{"lab_bootstrapper": false, "lab_control_planes": 3, "lab_workers": 1}')
"""Its site says `attested_bootstrapper: false`; machines that join by themselves are in `test_by_themselves.py`."""

SHARED = (
    "pki/ca.crt",
    "pki/ca.key",
    "pki/etcd/ca.crt",
    "pki/etcd/ca.key",
    "pki/front-proxy-ca.crt",
    "pki/front-proxy-ca.key",
    "pki/sa.key",
    "pki/sa.pub",
    "attested/encryption.yaml",
)
ETCDCTL = (
    "exec --namespace=kube-system etcd-{node} -- etcdctl --endpoints=https://127.0.0.1:2379"
    " --cacert=/etc/kubernetes/pki/etcd/ca.crt --cert=/etc/kubernetes/pki/etcd/server.crt"
    " --key=/etc/kubernetes/pki/etcd/server.key"
)


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster."""
    roads = road_through(*MADE, of="attested-control-planes:127.68.0", instead=USED_LAB, words=WORDS)
    with roads as road:
        yield road


def kubectl(road: Road, node: str, *words: str, check: bool = True) -> str:
    """Ask the API server of one control plane, on it and with its own credential."""
    config = ("--kubeconfig=/etc/kubernetes/admin.conf", f"--server=https://{MEMBERS[node]}:6443")
    return road.inside(node, "kubectl", *config, "--request-timeout=20s", *words, check=check)


def etcd_members(road: Road, node: str = "cp-1") -> dict[str, bool]:
    """Return whether each member of etcd is a learner, as etcdctl says on one of them."""
    said = kubectl(road, node, *ETCDCTL.format(node=node).split(), "member", "list", "--write-out=json", check=False)
    return {one["name"]: one.get("isLearner", False) for one in json.loads(said or '{"members": []}')["members"]}


def is_ready(road: Road, node: str, *, asked: str = "cp-1") -> bool:
    """Whether a Node is ready in the boot that its machine has."""
    template = "--output=jsonpath={.status.nodeInfo.bootID} {.status.conditions[?(@.type=='Ready')].status}"
    return kubectl(road, asked, "get", "node", node, template, check=False) == f"{road.boot_id(node)} True"


def test_each_is_a_ready_control_plane_and_a_member_of_etcd(road: Road) -> None:
    """None is left a learner, which would not count."""
    names = kubectl(road, "cp-1", "get", "nodes", "-l=node-role.kubernetes.io/control-plane", "--output=name")
    assert names.split() == [f"node/{node}" for node in MEMBERS]
    for node in (*MEMBERS, WORKER):
        wait_for(lambda node=node: is_ready(road, node))  # type: ignore[misc]
        assert_one_lock_event(road, node)
    assert etcd_members(road) == dict.fromkeys(MEMBERS, False)


@pytest.mark.parametrize("node", MEMBERS)
def test_the_api_server_of_each_serves(road: Road, node: str) -> None:
    """With the certificate that it made for itself: its own address and the name of the endpoint are in it."""
    assert len(kubectl(road, node, "get", "nodes", "--output=name").split()) == len(MEMBERS) + 1
    by_name = ("--server=https://api.lab.test:6443", "get", "--raw=/readyz")
    assert road.inside(node, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", *by_name) == "ok"


def test_what_they_share_is_the_same_on_all_and_on_no_worker(road: Road) -> None:
    """Private keys are root's alone, and none of them ever was on the worker."""
    paths = [f"/etc/kubernetes/{name}" for name in SHARED]
    assert len({road.inside(node, "sha256sum", *paths) for node in MEMBERS}) == 1
    private = [path for path in paths if path.endswith((".key", "encryption.yaml"))]
    for node in MEMBERS:
        assert set(road.inside(node, "stat", "--format=%a %U", *private).splitlines()) == {"600 root"}
    assert road.inside(WORKER, "find", "/etc/kubernetes", "/var/lib/attested", "-name", "*.key") == ""
    assert road.inside(WORKER, "find", "/etc/kubernetes/attested", "/var/lib/attested/key-service", check=False) == ""


def test_no_token_no_uploaded_certificates_and_no_kubeconfig_of_masters_exist(road: Road) -> None:
    """What stock kubeadm needs for a control plane, and this does not."""
    secrets = kubectl(road, "cp-1", "get", "secrets", "--namespace=kube-system", "--output=name")
    assert "kubeadm-certs" not in secrets
    assert "bootstrap-token" not in secrets
    assert (
        kubectl(
            road,
            "cp-1",
            "get",
            "csr",
            "--field-selector=spec.signerName!=kubernetes.io/kubelet-serving",
            "--output=name",
        )
        == ""
    )
    for node in MEMBERS:
        found = road.inside(node, "find", "/etc/kubernetes", "-name", "super-admin.conf", "-o", "-name", "bootstrap-*")
        assert found == ""


@pytest.mark.parametrize("playbook", ["init", "node", "policy"])
def test_a_second_run_changes_nothing(road: Road, playbook: str) -> None:
    """What is as it should be is left as it is."""
    changes = road.play(playbook, *WORDS).changes()
    assert set(changes.values()) == {0}, changes


def test_a_worker_gets_its_ticket_of_another_control_plane(road: Road) -> None:
    """The join service of the first one is stopped meanwhile."""
    road.inside("cp-1", "systemctl", "stop", "attested-join-service")
    try:
        boot = road.reboot(WORKER)
        road.play("node", "--limit", WORKER)
    finally:
        road.inside("cp-1", "systemctl", "start", "attested-join-service")
    road.wait_until_ready(WORKER, boot_id=boot)
    assert_one_lock_event(road, WORKER)


def test_a_rebooted_member_comes_back_alone(road: Road) -> None:
    """Its TPM opens its keys for the same boot, and it locks itself: no ticket, no run."""
    boot = road.reboot("cp-2")
    road.wait_until_ready("cp-2", boot_id=boot)
    assert_one_lock_event(road, "cp-2")
    wait_for(lambda: kubectl(road, "cp-2", "get", "--raw=/readyz", check=False) == "ok")
    wait_for(lambda: etcd_members(road) == dict.fromkeys(MEMBERS, False))
    for unit in ("attested-unlock", "attested-key-service", "attested-join-service"):
        assert road.inside("cp-2", "systemctl", "is-active", unit).strip() == "active"


def secrets_closed_by(road: Road) -> set[str]:
    """Return the keys that etcd's Secrets are closed by, asked with etcdctl; whatever else stands there is shown."""
    words = ("get", "/registry/secrets/", "--prefix", "--write-out=json")
    found = json.loads(kubectl(road, "cp-1", *ETCDCTL.format(node="cp-1").split(), *words))["kvs"]
    begin = "k8s:enc:secretbox:v1:"
    values = [base64.b64decode(one["value"])[:80].decode("latin-1") for one in found]
    return {text.removeprefix(begin).partition(":")[0] if text.startswith(begin) else text[:8] for text in values}


def key_file(road: Road, node: str) -> str:
    """Return the SHA-256 of the file with the keys of Secrets on one control plane."""
    return road.inside(node, "sha256sum", "/etc/kubernetes/attested/encryption.yaml")


def test_a_rotation_needs_every_control_plane(road: Road) -> None:
    """One that is left out would be unable to read what the others write: refused, and nothing is made."""
    before = key_file(road, "cp-1")
    process = road.start("rotate_encryption_key", *WORDS, "-e", "confirm=key-1", "--limit", "localhost,cp-1,cp-2")
    said, _errors = process.communicate(timeout=600)
    assert process.returncode
    assert "ROTATION_NODES_UNREACHED" in said
    assert key_file(road, "cp-1") == before


def test_the_key_of_secrets_is_rotated_without_a_restart(road: Road) -> None:
    """Three running API servers take each file by themselves; nothing is left of the first key, and all can read."""
    kubectl(road, "cp-2", "create", "secret", "generic", "kept", "--from-literal=value=canary")
    assert secrets_closed_by(road) == {"key-1"}
    pods = "get pods --namespace=kube-system --selector=component=kube-apiserver"
    restarts = (*pods.split(), "--output=jsonpath={.items[*].status.containerStatuses[0].restartCount}")
    before = kubectl(road, "cp-1", *restarts)
    shown = road.play("rotate_encryption_key", *WORDS, "-e", "confirm=key-1", "--check")
    assert secrets_closed_by(road) == {"key-1"}
    assert any(shown.changes().values())
    road.play("rotate_encryption_key", *WORDS, "-e", "confirm=key-1")
    (name,) = secrets_closed_by(road)
    assert name.startswith("key-2-")
    assert len({key_file(road, node).split()[0] for node in MEMBERS}) == 1
    for node in MEMBERS:
        value = kubectl(road, node, "get", "secret", "kept", "--output=jsonpath={.data.value}")
        assert base64.b64decode(value) == b"canary"
    assert kubectl(road, "cp-1", *restarts) == before
    changes = road.play("rotate_encryption_key", *WORDS, "-e", "confirm=key-1").changes()
    assert set(changes.values()) == {0}, changes
    road.play("status")


def test_a_rotation_that_was_killed_is_ended_by_the_next(road: Road) -> None:
    """Killed as soon as one of them has the new key; the next run goes on with that one and makes no other."""
    (old,) = secrets_closed_by(road)
    process = road.start("rotate_encryption_key", *WORDS, "-e", f"confirm={old}")
    wait_for(lambda: key_file(road, "cp-1").split()[0] != key_file(road, "cp-2").split()[0], seconds=300)
    process.kill()
    process.wait()
    road.play("rotate_encryption_key", *WORDS, "-e", f"confirm={old}")
    (new,) = secrets_closed_by(road)
    assert new.startswith("key-3-")
    assert len({key_file(road, node).split()[0] for node in MEMBERS}) == 1


def test_a_member_that_was_reset_leaves_etcd_and_joins_again(road: Road) -> None:
    """Its member, its Node and its keys go; the playbook node makes it a control plane once more."""
    road.play("reset", *WORDS, "-e", "confirm=cp-3")
    assert sorted(etcd_members(road)) == ["cp-1", "cp-2"]
    assert "node/cp-3" not in kubectl(road, "cp-1", "get", "nodes", "--output=name")
    assert (
        road.inside("cp-3", "find", "/etc/kubernetes", "/var/lib/attested/key-service", "-type", "f", check=False) == ""
    )
    road.play("node", *WORDS)
    wait_for(lambda: is_ready(road, "cp-3"))
    assert etcd_members(road) == dict.fromkeys(MEMBERS, False)


LEAVES = (
    *("admin.conf", "controller-manager.conf", "scheduler.conf"),
    *(f"pki/{name}" for name in ("apiserver.crt", "apiserver-etcd-client.crt", "apiserver-kubelet-client.crt")),
    *("pki/front-proxy-client.crt", "pki/etcd/healthcheck-client.crt", "pki/etcd/peer.crt", "pki/etcd/server.crt"),
)
RENEWAL = "attested-renew-control-plane"


def leaves_of(road: Road, node: str) -> dict[str, str]:
    """Return the hash of every file with a certificate that kubeadm renews."""
    said = road.inside(node, "sha256sum", *(f"/etc/kubernetes/{name}" for name in LEAVES))
    return {name: digest for digest, name in (line.split() for line in said.splitlines())}


def served(road: Road, node: str) -> str:
    """Return the certificate that a control plane's API server shows."""
    code = f"import ssl; print(ssl.get_server_certificate(({MEMBERS[node]!r}, 6443)), end='')"
    return road.inside(node, "/opt/attested/venv/bin/python", "-c", code)


def started_anew(road: Road, node: str) -> dict[str, str]:
    """Return since when each static pod of a control plane runs by the renewal's own annotation."""
    pods = json.loads(
        kubectl(road, "cp-1", "get", "pods", "--namespace=kube-system", "-l=tier=control-plane", "-o=json")
    )
    return {
        pod["metadata"]["labels"]["component"]: pod["metadata"]["annotations"]["attested-kubernetes.dev/restarted-at"]
        for pod in pods["items"]
        if pod["spec"]["nodeName"] == node
        and "attested-kubernetes.dev/restarted-at" in pod["metadata"]["annotations"]
        and all(one["ready"] for one in pod["status"]["containerStatuses"])
    }


def test_certificates_that_have_time_left_are_left_alone(road: Road) -> None:
    """A run changes nothing then, and nobody is started anew."""
    before = {node: leaves_of(road, node) for node in MEMBERS}
    assert set(road.play("rotate_certificates").changes().values()) == {0}
    assert {node: leaves_of(road, node) for node in MEMBERS} == before
    assert [started_anew(road, node) for node in MEMBERS] == [{}, {}, {}]


def test_all_certificates_are_rotated_on_one_control_plane_after_the_other(road: Road) -> None:
    """Each component runs with its new ones, no two control planes were started anew at once, and nothing was lost."""
    before = {node: leaves_of(road, node) for node in MEMBERS}
    kubectl(road, "cp-1", "create", "configmap", "before-rotation")
    road.play("rotate_certificates", "-e", "attested_certificates_at_once=true")
    for node in MEMBERS:
        after = leaves_of(road, node)
        assert [name for name in after if after[name] == before[node][name]] == []
        assert served(road, node) == road.inside(node, "cat", "/etc/kubernetes/pki/apiserver.crt")
        assert (
            kubectl(road, node, "get", "configmap", "before-rotation", "--output=name") == "configmap/before-rotation\n"
        )
        assert (
            road.inside(node, "find", "/etc/kubernetes", "-name", "*super-admin*", "-o", "-name", "attested-renewal")
            == ""
        )
    times = {node: sorted(started_anew(road, node).values()) for node in MEMBERS}
    assert [len(found) for found in times.values()] == [4, 4, 4]
    assert times["cp-1"][-1] < times["cp-2"][0] < times["cp-2"][-1] < times["cp-3"][0]
    assert etcd_members(road) == dict.fromkeys(MEMBERS, False)
    assert set(road.play("rotate_certificates").changes().values()) == {0}


def test_the_timer_runs_only_where_the_site_says_so_and_its_sandbox_lets_it_renew(road: Road) -> None:
    """What the unit allows is given to a run that renews everything, since nothing is due in a lab."""
    road.play("init", *WORDS, "-e", "attested_control_plane_certificates_renewed=true")
    assert road.inside("cp-1", "systemctl", "is-active", f"{RENEWAL}.timer").strip() == "active"
    unit = road.inside("cp-1", "systemctl", "cat", f"{RENEWAL}.service")
    program = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).removeprefix("ExecStart=")
    limits = [
        line for line in unit.partition("[Service]")[2].splitlines() if line and not line.startswith(("Exec", "Type="))
    ]
    before = leaves_of(road, "cp-1")
    words = ["systemd-run", "--wait", "--pipe", *(f"--property={line}" for line in limits), *program.split(), "--now"]
    road.inside("cp-1", *words)
    assert [name for name, digest in leaves_of(road, "cp-1").items() if digest == before[name]] == []
    road.inside("cp-1", "systemctl", "start", f"{RENEWAL}.service")
    road.play("init", *WORDS, "-e", "attested_control_plane_certificates_renewed=false")
    assert road.inside("cp-1", "systemctl", "is-active", f"{RENEWAL}.timer", check=False).strip() != "active"


def test_the_loss_of_the_first_one_is_survived(road: Road) -> None:
    """It is stopped, and what is written meanwhile is there when it comes back."""
    road.inside("cp-1", "systemctl", "stop", "kubelet", "containerd", "attested-join-service", "attested-key-service")
    kill = "for p in $(pgrep -f '^(kube-|etcd )'); do kill -9 $p; done"
    road.inside("cp-1", "sh", "-c", kill)
    wait_for(lambda: kubectl(road, "cp-2", "create", "configmap", "written", check=False) != "", seconds=300)
    assert is_ready(road, WORKER, asked="cp-3")
    boot = road.reboot("cp-1")
    road.wait_until_ready("cp-1", boot_id=boot)
    assert kubectl(road, "cp-1", "get", "configmap", "written", "--output=name") == "configmap/written\n"
    assert etcd_members(road) == dict.fromkeys(MEMBERS, False)


def test_status_and_verify_find_nothing_wrong(road: Road) -> None:
    """After all of that."""
    for playbook in ("verify", "status"):
        road.play(playbook)
