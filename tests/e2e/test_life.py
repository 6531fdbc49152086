# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of one cluster in the lab: admissions, refusals, second runs, kills and reboots."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from ipaddress import ip_address, ip_network
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import make_identity
from ansible_collections.attested.kubernetes.tests.e2e.conftest import USED_LAB
from ansible_collections.attested.kubernetes.tests.support import charts, upgrade_faults
from ansible_collections.attested.kubernetes.tests.support.boot_lab import UNIT
from ansible_collections.attested.kubernetes.tests.support.boundaries import commit, drawn
from ansible_collections.attested.kubernetes.tests.support.joining import assert_a_clean_node, bring_before
from ansible_collections.attested.kubernetes.tests.support.road import assert_one_lock_event
from ansible_collections.attested.kubernetes.tests.support.striking import (
    put_faults_into,
    slice_of_the_matrix,
    suffer,
    tell,
)
from ansible_collections.attested.kubernetes.tests.support.upgrade_faults import Upgrades, case_of
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.road import Road

NOT_FOR_SERVING = "--field-selector=spec.signerName!=kubernetes.io/kubelet-serving"
"""The CSRs of kubelets for serving certificates; no other CSR exists."""
NODES = ("cp-1", "w-1", "w-2")

SIGNS = ["/run/attested/tickets/*", "/run/attested/nodelock.log", "kubeadm", "/var/lib/kubelet/config.yaml"]
"""A path or a process before the lock, after it, and during kubeadm, in this order."""

# Runs on a node. Starts the unit, and kills the bootstrapper and kubeadm as soon as the path or a process with that
# name exists; prints the number of killed processes.
KILLER = """
import contextlib, os, pathlib, signal, subprocess, sys, time
def processes():
    for one in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            yield int(one.name), (one / "cmdline").read_bytes().split(bytes(1))
        except OSError:
            pass
def there(sign):
    if sign.startswith("/"):
        return any(pathlib.Path("/").glob(sign[1:]))
    return any(words[0].endswith(sign.encode()) for _pid, words in processes())
subprocess.run(("systemctl", "start", "--no-block", sys.argv[2]), check=True)
deadline = time.monotonic() + 900
while time.monotonic() < deadline:
    if there(sys.argv[1]):
        ended = [pid for pid, words in processes() if b"bootstrapper" in words or words[0].endswith(b"kubeadm")]
        for pid in ended:
            with contextlib.suppress(ProcessLookupError):  # it has ended since it was seen
                os.kill(pid, signal.SIGKILL)
        if ended:
            print(len(ended))
            break
    time.sleep(0.001)
"""

READER = """
import hashlib, json, pathlib
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
leaf = x509.load_pem_x509_certificate(pathlib.Path("/var/lib/kubelet/pki/kubelet-client-current.pem").read_bytes())
spki = leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
digest = hashlib.sha256(leaf.public_bytes(Encoding.DER)).hexdigest()
print(json.dumps({"serial": f"{leaf.serial_number:x}", "key": hashlib.sha256(spki).hexdigest(), "sha256": digest}))
"""
KUBELET_READS_SECONDS = 420
NIGHTLY = "ATTESTED_RANDOM_EXAMPLES"
"""Set by `make nightly` (tests/run.py)."""

# Sends a request without credentials and prints the status of the answer.
ASKER = """
import ssl, sys, urllib.error, urllib.request
context = ssl.create_default_context(cafile="/etc/kubernetes/pki/ca.crt")
try:
    print(urllib.request.urlopen(sys.argv[1], context=context, timeout=30).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_a_prepared_machine_waits_and_says_for_what(road: Road) -> None:
    """The state before the cluster exists."""
    if os.environ.get(USED_LAB):
        pytest.skip("the lab that is used has a cluster")
    assert state_of(road, "cp-1") == "active"
    assert "race" in road.inside("cp-1", "journalctl", "--unit", UNIT).lower()
    wait_for(lambda: "PEER_UNREACHABLE" in road.inside("w-1", "attested", "status", check=False))


def test_one_init_over_the_wire_makes_the_cluster(road: Road) -> None:
    """The control plane shows evidence to the admin on port 9000 and initializes the cluster by itself."""
    if os.environ.get(USED_LAB):
        pytest.skip("the lab that is used has a cluster")
    assert "attested.kubernetes.init" in road.play("init").output
    assert_one_lock_event(road, "cp-1")
    assert road.inside("cp-1", "cat", "/run/attested/claim.json").count('"init"') == 1


def test_the_workers_join_by_themselves(road: Road) -> None:
    """Workers requested tickets all the time without a command on them; port 9000 is open only as long as needed.

    The playbook writes the assigned disk ids to the site.
    """
    for node in NODES:
        road.wait_until_ready(node, boot_id=road.boot_id(node))
        wait_for_inactive(road, node)
        assert_one_lock_event(road, node)
    wait_for(lambda: ":9000" not in road.inside("cp-1", "ss", "-ltn"))
    assert not road.inside("cp-1", "sh", "-c", "ls /run/attested/bootstrapper.sock 2>/dev/null || true")
    road.play("node")
    assert "attested_disk_id: " in (road.site / "host_vars/w-1/identity.yml").read_text()


def test_the_tour_shows_admissions_and_refusals(road: Road) -> None:
    """Must show 1: nodes, a Pod on each behind a Service, three refusals, and absent objects."""
    said = road.play("lab_tour").output
    for code in ("TICKET_REFUSED", "PCR_MISMATCH", "IDENTITY_UNKNOWN"):
        assert code in said
    assert "kernel command line" in said
    assert said.count("the admin, in init: its TPM") == 1


def test_flannel_carries_the_pods_of_the_tour(road: Road) -> None:
    """Each node has routes to the Pods of the others via their addresses; Pods reach each other by address."""
    nodes = {one["metadata"]["name"]: one for one in json.loads(road.kubectl("get", "nodes", "--output=json"))["items"]}
    pods = json.loads(road.kubectl("get", "pods", "--namespace=lab-tour", "--output=json"))["items"]
    addresses = {one["spec"]["nodeName"]: one["status"]["podIP"] for one in pods}
    assert set(addresses) == set(nodes) == set(NODES)
    for name, node in nodes.items():
        subnet = ip_network(node["spec"]["podCIDR"])
        assert ip_address(addresses[name]) in subnet
        (written,) = road.inside(name, "ls", "/etc/cni/net.d").split()
        conflist = json.loads(road.inside(name, "cat", f"/etc/cni/net.d/{written}"))
        bridge = conflist["plugins"][0]
        assert (conflist["name"], bridge["ipam"]["ranges"]) == ("flannel", [[{"subnet": str(subnet)}]])
        routes = {one["dst"]: one.get("gateway") for one in json.loads(road.inside(name, "ip", "-j", "route"))}
        ways = {other: routes.get(nodes[other]["spec"]["podCIDR"]) for other in NODES}
        assert ways == {other: None if other == name else host_of(nodes[other]) for other in NODES}
    for name, other in zip(NODES, (*NODES[1:], NODES[0]), strict=True):
        asked = ("busybox", "timeout", "5", "wget", "-q", "-O-", f"http://{addresses[other]}:8080/")
        assert road.kubectl("exec", "--namespace=lab-tour", f"web-{name}", "--", *asked).strip() == other


def host_of(node: dict[str, Any]) -> str:
    """Return the address of a Node inside of the cluster."""
    return next(str(one["address"]) for one in node["status"]["addresses"] if one["type"] == "InternalIP")


def test_nothing_is_pending_and_no_token_exists(road: Road) -> None:
    """By the API server, not by our module."""
    assert road.kubectl("get", "csr", NOT_FOR_SERVING, "--output=name") == ""
    assert road.kubectl("get", "secrets", "-A", "--field-selector=type=bootstrap.kubernetes.io/token", "-o=name") == ""
    bindings = json.loads(road.kubectl("get", "clusterrolebindings", "--output=json"))["items"]
    names = {one["metadata"]["name"] for one in bindings}
    assert not [name for name in names if "autoapprove" in name or "kubelet-bootstrap" in name]


def test_nothing_is_left_for_a_stranger(road: Road) -> None:
    """No cluster-info, no role for it, no answer without a certificate; and no kubeconfig of init."""
    for kind in ("configmaps", "roles", "rolebindings"):
        found = road.kubectl("get", kind, "--namespace=kube-public", "--output=name").split()
        assert not [name for name in found if "cluster-info" in name]
    server = road.kubectl("config", "view", "--output=jsonpath={.clusters[0].cluster.server}").strip()
    for path, code in (("/livez", "200"), ("/api/v1/namespaces/kube-public/configmaps/cluster-info", "401")):
        answer = road.inside("cp-1", "python3", "-c", ASKER, f"{server}{path}")
        assert answer.strip() == code
    left = road.inside("cp-1", "ls", "/etc/kubernetes").split()
    assert "admin.conf" in left
    assert "super-admin.conf" not in left


def test_a_node_does_not_make_its_object_anew(road: Road) -> None:
    """With the kubelet's own credential on the real API server; all writes are dry runs, and denied."""
    config = "--kubeconfig=/etc/kubernetes/kubelet.conf"
    label = "node-role.kubernetes.io/control-plane-"
    assert road.inside("cp-1", "kubectl", config, "get", "node", "cp-1", "--output=name").strip() == "node/cp-1"
    for words in (("delete", "node", "cp-1"), ("delete", "node", "w-1"), ("label", "node", "cp-1", label)):
        road.inside("cp-1", "sh", "-c", '! kubectl "$@" 2>/tmp/said', "sh", config, *words, "--dry-run=server")
        assert "orbidden" in road.inside("cp-1", "cat", "/tmp/said")
    road.inside("cp-1", "rm", "/tmp/said")


def test_static_pods_are_named_by_digest(road: Road) -> None:
    """Compares the kubelet's configuration, running images, and the bundle."""
    known = json.loads(road.inside("cp-1", "cat", "/etc/attested/images.json"))
    wanted = {one["component"]: f"{one['reference']}@{one['digest']}" for one in known}
    pods = json.loads(road.kubectl("get", "pods", "--namespace=kube-system", "--output=json"))["items"]
    static = [one for one in pods if one["metadata"]["ownerReferences"][0]["kind"] == "Node"]
    for pod in static:
        (container,), (status,) = pod["spec"]["containers"], pod["status"]["containerStatuses"]
        assert container["image"] == wanted[container["name"]]
        assert status["imageID"] == re.sub(r":[^:@]+@", "@", container["image"])
    assert {one["spec"]["containers"][0]["name"] for one in static} == {
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    }


def test_secrets_are_closed_in_etcd(road: Road) -> None:
    """Searches etcd's files; the value of a ConfigMap is found, which proves the search."""
    closed, open_ = (f"canary-{secrets.token_hex(16)}" for _each in range(2))
    for kind, name, value in (("secret", "generic", closed), ("configmap", "", open_)):
        words = [word for word in ("create", kind, name, "at-rest", f"--from-literal=value={value}") if word]
        road.kubectl(*words)
    counted = {value: count_in_etcd(road, value) for value in (closed, open_, "k8s:enc:secretbox:v1:key-1:")}
    for kind in ("secret", "configmap"):
        road.kubectl("delete", kind, "at-rest")
    assert counted[closed] == 0
    assert counted[open_] > 0
    assert counted["k8s:enc:secretbox:v1:key-1:"] > 0
    assert road.inside("cp-1", "stat", "--format=%a %U", "/etc/kubernetes/attested/encryption.yaml").split() == [
        "600",
        "root",
    ]


@pytest.mark.parametrize("playbook", ["init", "node"])
def test_a_second_run_changes_nothing(road: Road, playbook: str) -> None:
    """A second run changes nothing."""
    changes = road.play(playbook).changes()
    assert set(changes.values()) == {0}, changes


def test_the_sites_add_ons_are_applied_and_custom_objects_stay(road: Road) -> None:
    """A chart, a second run, and a chart without its CRD, whose object is restored; over ssh, by real modules."""
    row = {"name": "widgets", "namespace": "widgets", "chart": "charts/one", "values": {"text": "of the site"}}
    text = charts.config_map("shown", "{{ .Values.text }}")
    charts.chart(road.site / "charts/one", charts.definition(), text)
    charts.chart(road.site / "charts/two", text, version="2.0.0")
    recipients = json.dumps({"attested_backup_recipients": [make_identity()[1]]})
    write_addons(road, row)
    foreseen = road.play("addons", "--check", "--diff", "-e", recipients)
    assert "text: of the site" in foreseen.output.replace('"', "")
    assert road.kubectl("get", "crd", charts.WIDGETS, "--ignore-not-found") == ""
    assert road.play("addons", "-e", recipients).changes()["cp-1"] == 1
    assert set(road.play("addons", "-e", recipients).changes().values()) == {0}
    widget = {"apiVersion": f"{charts.GROUP}/v1", "kind": "Widget", "metadata": {"name": "mine"}, "spec": {"size": 4}}
    road.kubectl("create", "-f", "-", given=json.dumps(widget).encode())
    write_addons(road, {**row, "chart": "charts/two"})
    assert "put back 1 definition " in road.play("addons", "-e", recipients).output
    assert json.loads(road.kubectl("get", charts.WIDGETS, "mine", "--output=json"))["spec"] == {"size": 4}
    assert len(list((road.site / "backups").glob("addon-widgets.widgets-*.age"))) == 1
    (road.site / "addons.yml").unlink()


def write_addons(road: Road, row: Mapping[str, object]) -> None:
    (road.site / "addons.yml").write_text(json.dumps({"addons": [row]}))


def test_fresh_evidence_of_every_node_reads_locked_to_this_cluster(road: Road, tmp_path: Path) -> None:
    """The playbook verify challenges each node again and reports; a wrong number of lock events would fail it."""
    road.play("verify", "-e", f"attested_report={tmp_path / 'fleet'}")
    for node in NODES:
        assert_one_lock_event(road, node)
    report = json.loads((tmp_path / "fleet.json").read_bytes())
    assert report["cluster_id"] == cluster_id(road)
    assert {one["node"]: one["outcome"] for one in report["nodes"]} == dict.fromkeys(NODES, "verified")
    page = (tmp_path / "fleet.html").read_text(encoding="utf-8")
    assert [node for node in NODES if node not in page] == []


def test_a_worker_pushes_its_evidence_and_renews_by_itself(road: Road) -> None:
    """Both timers are waiting; other tests run their services."""
    timers = ("attested-reattest.timer", "attested-renew.timer")
    assert road.inside("w-1", "systemctl", "is-active", *timers).split() == ["active", "active"]


def test_a_worker_renews_its_certificate_by_its_unit(road: Road) -> None:
    """By the unit of the timer, started now: a new key, no pending CSR, and the same kubelet, ready."""
    before, kubelet = credential(road, "w-1"), main_pid(road, "w-1", "kubelet.service")
    drop_in = "/run/systemd/system/attested-renew.service.d/now.conf"
    now = "[Service]\nExecStart=\nExecStart=/opt/attested/venv/bin/attested-agent renew --now\n"
    road.inside("w-1", "mkdir", "-p", str(PurePosixPath(drop_in).parent))
    road.inside("w-1", "tee", drop_in, given=now.encode())
    try:
        road.inside("w-1", "systemctl", "daemon-reload")
        road.inside("w-1", "systemctl", "start", "attested-renew.service")
    finally:
        road.inside("w-1", "rm", "-r", str(PurePosixPath(drop_in).parent))
        road.inside("w-1", "systemctl", "daemon-reload")
    after = credential(road, "w-1")
    assert {name: after[name] != before[name] for name in after} == {"serial": True, "key": True, "sha256": True}
    said = json.loads(road.inside("w-1", "/opt/attested/venv/bin/attested", "status", "--json"))
    assert (said["reason"], said["to_do"]) == (None, "Nothing.")
    assert road.inside("w-1", "sh", "-c", "ls /var/lib/kubelet/pki/kubelet-client-*.pem | wc -l").strip() == "2"
    assert road.inside("w-1", "find", "/run/attested/renewal", "-name", "*.pem") == ""
    assert road.kubectl("get", "csr", NOT_FOR_SERVING, "--output=name") == ""
    assert main_pid(road, "w-1", "kubelet.service") == kubelet
    road.wait_until_ready("w-1", boot_id=road.boot_id("w-1"))


@pytest.mark.parametrize("node", NODES)
def test_a_kubelet_leaves_the_renewal_to_its_node(road: Road, node: str) -> None:
    """With `rotateCertificates` it would not load a renewed certificate: `configz` shows what the kubelet runs with."""
    found = json.loads(road.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/configz"))["kubeletconfig"]
    assert found["serverTLSBootstrap"]
    assert not found.get("rotateCertificates")


def test_before_its_time_a_renewal_asks_nobody(road: Road) -> None:
    """The usual result of the timer, run by an operator."""
    before = credential(road, "w-2")
    road.inside("w-2", "/opt/attested/venv/bin/attested", "renew")
    assert credential(road, "w-2") == before


def test_a_bootstrapper_killed_on_its_way_ends_joined(road: Road, counted: Callable[[str], None]) -> None:
    """SIGKILL at two of `SIGNS`, chosen by the commit, then to both services."""
    signs = drawn(SIGNS, count=2, seed=commit())
    counted(f"killed at {' and '.join(signs)}")
    road.inside("w-2", "systemctl", "disable", UNIT)
    road.play("reset", "-e", "confirm=w-2")
    for sign in signs:
        killed = road.inside("w-2", "python3", "-c", KILLER, sign, UNIT)
        assert killed.strip(), f"expected a bootstrapper on w-2 to be there at {sign}, it had ended"
    road.inside("w-2", "systemctl", "enable", UNIT)
    for service in ("attested-join-service", "attested-key-service"):
        road.inside("cp-1", "systemctl", "kill", "--signal=KILL", service)
    road.play("node")
    road.wait_until_ready("w-2", boot_id=road.boot_id("w-2"))
    assert_one_lock_event(road, "w-2")


def test_the_kubelet_speaks_with_the_certificate_that_was_renewed(road: Road) -> None:
    """The audit log has each caller's certificate. The kubelet reloads its certificate every five minutes."""
    if not os.environ.get(NIGHTLY):
        pytest.skip("the kubelet takes up to five minutes to look at its certificate: `make nightly` waits for it")
    wanted = f"X509SHA256={credential(road, 'w-1')['sha256']}"
    script = f"""grep -h {wanted} /var/log/kubernetes/audit/*.log | grep -c '"userAgent":"kubelet/' || true"""
    deadline = time.monotonic() + KUBELET_READS_SECONDS
    while not (seen := int(road.inside("cp-1", "sh", "-c", script))) and time.monotonic() < deadline:
        time.sleep(5)
    assert seen
    road.wait_until_ready("w-1", boot_id=road.boot_id("w-1"))


def test_after_a_reboot_of_all_everything_comes_back_alone(road: Road) -> None:
    """TPMs are reset, locks are gone: the control plane opens its keys, workers get new tickets, without a command."""
    boots = {node: road.reboot(node) for node in NODES}
    for node in NODES:
        road.wait_until_ready(node, boot_id=boots[node])
        assert_one_lock_event(road, node)
        wait_for_inactive(road, node)
    assert "REJOIN" in road.inside("w-1", "journalctl", "--boot", "--unit", UNIT)
    assert "KUBELET" in road.inside("cp-1", "journalctl", "--boot", "--unit", UNIT)
    road.play("verify")


def test_a_killed_bootstrapper_goes_on(road: Road) -> None:
    """SIGKILL while it waits for a stopped join service; systemd restarts it, and then it joins."""
    road.inside("cp-1", "systemctl", "stop", "attested-join-service")
    boot = road.reboot("w-1")
    wait_for(lambda: state_of(road, "w-1") == "active")
    road.inside("w-1", "systemctl", "kill", "--signal=KILL", UNIT)
    road.inside("cp-1", "systemctl", "start", "attested-join-service")
    road.wait_until_ready("w-1", boot_id=boot)
    assert_one_lock_event(road, "w-1")


def test_a_worker_joins_through_three_faults(road: Road, counted: Callable[[str], None]) -> None:
    """A slice of the matrix (tests/system/matrix): each fault once, in one join, before steps chosen by the commit."""
    orders = slice_of_the_matrix(commit())
    counted(f"slice of the matrix: {', '.join(map(str, orders))}")
    put_faults_into(road, "w-1")
    bring_before(road, "w-1", orders[0].point)
    tell(road, "w-1", *orders)
    road.lab.ssh("w-1", "sudo systemctl reboot")
    suffer(road, "w-1", *orders)
    assert_a_clean_node(road, "w-1")


def test_a_cluster_that_was_reset_is_made_again(road: Road) -> None:
    """From the same site and machines, the control plane first: workers request tickets at once."""
    before = cluster_id(road)
    for node in NODES:
        road.play("reset", "-e", f"confirm={node}")
    for playbook in ("init", "node", "verify"):
        road.play(playbook)
    for node in NODES:
        assert_one_lock_event(road, node)
    assert cluster_id(road) == before


def test_the_network_and_the_labels_that_a_site_chose_are_applied_once(road: Road, tmp_path: Path) -> None:
    """The playbook node applies `attested_cni_manifest`, here only a ConfigMap, and `attested_node_labels`."""
    manifest = tmp_path / "network.yml"
    name = {"name": "chosen-network", "namespace": "kube-system"}
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": {"a": "b"}}))
    words = (
        "-e",
        json.dumps({"attested_cni_manifest": str(manifest), "attested_node_labels": {"example.com/rack": "r7"}}),
    )
    assert road.play("node", *words).changes() == {"cp-1": 2, "w-1": 1, "w-2": 1}
    assert road.kubectl("get", "nodes", "--selector=example.com/rack=r7", "--output=name").split() == [
        f"node/{node}" for node in NODES
    ]
    assert road.kubectl("get", "configmap", "chosen-network", "--namespace=kube-system", "--output=name").strip()
    assert set(road.play("node", *words).changes().values()) == {0}


def test_an_upgrade_is_completed_after_a_fault(road: Road, counted: Callable[[str], None]) -> None:
    """A slice of the matrix of upgrades (tests/system/matrix): one case, chosen by the commit."""
    case = case_of(commit())
    counted(f"slice of the matrix of upgrades: {case}")
    upgrades = Upgrades.prepared(road, "next", words=("--limit", ",".join(upgrade_faults.NODES)))
    assert [*upgrades.fail_and_complete(case)] == [case]


def credential(road: Road, node: str) -> dict[str, str]:
    """Return the facts of a kubelet's certificate, parsed without our code."""
    said = road.inside(node, "/opt/attested/venv/bin/python", "-c", READER)
    return dict(json.loads(said))


def wait_for_inactive(road: Road, machine: str) -> None:
    wait_for(lambda: state_of(road, machine) == "inactive")


def state_of(road: Road, machine: str) -> str:
    """Return what systemd says of the bootstrapper."""
    return road.inside(machine, "systemctl", "is-active", UNIT, check=False).strip()


def main_pid(road: Road, node: str, unit: str) -> str:
    """Return the process of a unit."""
    return road.inside(node, "systemctl", "show", "--property=MainPID", "--value", unit).strip()


def cluster_id(road: Road) -> str:
    """Return the identifiers of the site and its cluster."""
    return str(yaml.safe_load((road.site / "cluster.yml").read_text())["cluster_id"])


def count_in_etcd(road: Road, text: str) -> int:
    """Return the number of etcd's files with the text."""
    found = road.inside("cp-1", "grep", "-rlaF", "--", text, "/var/lib/etcd/member", check=False)
    return len(found.splitlines())
