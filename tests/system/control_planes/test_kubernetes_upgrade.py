# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three control planes and two workers go from Kubernetes 1.35 to 1.37 by one command, while a client asks.

A Deployment with a PodDisruptionBudget runs on the workers, and kubelet removes unused images as soon as it may. The
programs of three versions are built, which takes half an hour where they are not there yet. The tests are in the order
of one lab's life and share it.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pytest
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_UPGRADE_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

PLANES = ("cp-1", "cp-2", "cp-3")
WORKERS = ("w-1", "w-2")
NODES = (*PLANES, *WORKERS)
BEFORE, BETWEEN, AFTER = "1.35.4", "1.36.3", "1.37.2"
MACHINES = {"lab_control_planes": len(PLANES), "lab_workers": len(WORKERS)}
KUBELET = {"imageGCHighThresholdPercent": 2, "imageGCLowThresholdPercent": 1, "imageMinimumGCAge": "1s"}
SITE = {"attested_kubelet_configuration": KUBELET}
WORDS = ("-e", json.dumps(MACHINES | SITE))
REPLICAS, NEEDED = 4, 3
STATIC_PODS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
LEFT = "ls -d /etc/kubernetes/tmp /var/lib/attested/kubeadm/upgrade 2>/dev/null"
"""Lists what is there while an upgrade has not ended."""
PATCH = "/var/lib/attested/kubeadm/patches/kube-apiserver9+strategic.json"
BROKEN = '{"spec": {"containers": [{"name": "kube-apiserver", "command": ["kube-apiserver", "--no-such-argument"]}]}}'


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster of the older version."""
    with road_through("lab", "init", "node", of="attested-upgrade:127.74.0", instead=USED_LAB, words=WORDS) as road:
        yield road


@pytest.fixture(scope="module")
def words(road: Road) -> tuple[str, ...]:
    """Return the words by which a playbook uses the bundle of the newer version, which lies on every machine."""
    bundle = {"attested_kubernetes_version": AFTER, "attested_kubernetes_steps": [BETWEEN]}
    places = {"attested_bundle": str(road.lab.directory / "bundles" / "newer")}
    chosen = ("-e", json.dumps({**SITE, **bundle, **places, "attested_bundle_on_node": "/srv/bundles/newer"}))
    road.play("bundle", *chosen)
    road.play("prepare", *chosen)
    return chosen


class Client:
    """Asks each API server four times a second whether it is ready, until the block ends.

    Once a second it also counts the Pods of the guarded Deployment that run and are not being deleted. Their condition
    Ready would count as lost what only runs on a node whose kubelet was late to report.
    """

    def __init__(self, road: Road) -> None:
        self._road = road
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=one) for one in (self._ask, self._count)]
        self.gaps: list[float] = []
        self.running: list[int] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _count(self) -> None:
        asked = ["get", "pods", "--selector=app=guarded", "--output=json", "--request-timeout=3s"]
        while not self._ended.is_set():
            for plane in PLANES:
                words = [
                    "kubectl",
                    "--kubeconfig=/etc/kubernetes/admin.conf",
                    "--server=https://127.0.0.1:6443",
                    *asked,
                ]
                done = self._run(plane, *words)
                if done.returncode == 0:
                    self.running.append(sum(map(runs, json.loads(done.stdout)["items"])))
                    break
            time.sleep(1)

    def _ask(self) -> None:
        """Ask as a proxy before all three would: the API is away while none of them answers."""
        since = None
        while not self._ended.is_set():
            well = any(self._answers(name) for name in PLANES)
            now = time.monotonic()
            if well and since is not None:
                self.gaps.append(now - since)
            since = None if well else since or now
            time.sleep(0.25)

    def _answers(self, plane: str) -> bool:
        asked = ["curl", "--silent", "--fail", "--insecure", "--max-time", "1", "https://127.0.0.1:6443/readyz"]
        return self._run(plane, *asked).returncode == 0

    def _run(self, plane: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        program = str(self._road.lab.directory / "podman")
        return subprocess.run([program, "exec", plane, *words], capture_output=True, check=False)


def tell(client: Client) -> None:
    gaps = client.gaps
    print(f"API: {len(gaps)} gaps, {sum(gaps):.1f} s in total, the longest {max(gaps, default=0):.1f} s")
    print(f"Pods: {len(client.running)} times counted, {min(client.running)} at least")


def runs(pod: dict[str, Any]) -> bool:
    """Return whether the containers of a Pod are ready, as its kubelet last said, and it is not being deleted."""
    told = pod["status"].get("containerStatuses", [])
    return bool(told) and all(one["ready"] for one in told) and "deletionTimestamp" not in pod["metadata"]


def nodes(road: Road) -> dict[str, tuple[str, bool, bool]]:
    """Return of each node the version of its kubelet, whether it is Ready, and whether it takes Pods."""
    return {
        one["metadata"]["name"]: (
            one["status"]["nodeInfo"]["kubeletVersion"].removeprefix("v"),
            any(row["type"] == "Ready" and row["status"] == "True" for row in one["status"]["conditions"]),
            not one["spec"].get("unschedulable", False),
        )
        for one in json.loads(road.kubectl("get", "nodes", "--output=json"))["items"]
    }


def images(road: Road) -> dict[str, set[str]]:
    """Return the images of each static Pod by its name."""
    pods = json.loads(road.kubectl("get", "pods", "--namespace=kube-system", "--output=json"))["items"]
    found: dict[str, set[str]] = {}
    for pod in pods:
        name = pod["metadata"]["name"].rpartition("-cp-")[0]
        if name in STATIC_PODS:
            found.setdefault(name, set()).add(pod["spec"]["containers"][0]["image"])
    return found


def api_servers(road: Road) -> dict[str, str]:
    """Return the version of each API server."""
    pods = road.kubectl(
        "get", "pods", "--namespace=kube-system", "--selector=component=kube-apiserver", "--output=json"
    )
    return {
        one["spec"]["nodeName"]: one["spec"]["containers"][0]["image"].partition("@")[0].rpartition(":v")[2]
        for one in json.loads(pods)["items"]
    }


def guard(road: Road) -> None:
    """Let four replicas run of which three are needed, on the workers; the image is that of the tour."""
    labels = {"app": "guarded"}
    container = {"name": "sleep", "image": "localhost/attested-tour:1", "command": ["/bin/busybox", "sleep", "86400"]}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container | {"imagePullPolicy": "Never"}]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "guarded"},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded"},
        "spec": {"minAvailable": NEEDED, "selector": {"matchLabels": labels}},
    }
    for one in (deployment, budget):
        road.kubectl("apply", "--filename=-", given=json.dumps(one).encode())
    road.kubectl("rollout", "status", "deployment/guarded", "--timeout=120s")


def pinned(road: Road, machine: str) -> dict[str, str]:
    rows: list[dict[str, Any]] = json.loads(road.inside(machine, "cat", "/etc/attested/images.json"))
    return {row["component"]: f"{row['reference']}@{row['digest']}" for row in rows}


def test_the_plan_changes_nothing(road: Road, words: tuple[str, ...], counted: Callable[[str], None]) -> None:
    dns = {"minAvailable": "100%", "selector": {"matchLabels": {"k8s-app": "kube-dns"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "dns"}, "spec": dns}
    road.kubectl("apply", "--namespace=kube-system", "--filename=-", given=json.dumps(budget).encode())
    time.sleep(5)
    run = road.finish("upgrade", road.start("upgrade", "--check", "-e", "attested_upgrade_drain_seconds=10", *words))
    road.kubectl("delete", "poddisruptionbudget", "dns", "--namespace=kube-system")
    assert run.returncode != 0
    assert "PodDisruptionBudget kube-system/dns allows no eviction now" in run.output
    assert "NODE_NOT_DRAINED" in run.output
    began = time.monotonic()
    run = road.play("upgrade", "--check", *words)
    counted(f"the plan of {len(NODES)} nodes took {time.monotonic() - began:.1f} s (aim for three: 20)")
    for name in NODES:
        assert f"{name}: {BEFORE} -> {AFTER}, Pods are drained" in run.output
    for name in PLANES:
        assert f"{name}: control plane to {BETWEEN}, its kubelet stays" in run.output
    assert api_servers(road) == dict.fromkeys(PLANES, BEFORE)
    assert nodes(road) == dict.fromkeys(NODES, (BEFORE, True, True))


def test_an_api_server_that_cannot_start_is_put_back(road: Road, words: tuple[str, ...]) -> None:
    """On the second control plane, by a patch of kubeadm that gives it an argument which it does not know."""
    road.inside("cp-2", "sh", "-c", f"cat > {PATCH}", given=BROKEN.encode())
    run = road.finish("upgrade", road.start("upgrade", *words))
    assert run.returncode != 0
    assert "KUBERNETES_NOT_HEALTHY" in run.output
    assert f"the node was put back to {BEFORE}" in run.output
    assert api_servers(road) == {"cp-1": BETWEEN, "cp-2": BEFORE, "cp-3": BEFORE}
    wait_for(lambda: nodes(road) == dict.fromkeys(NODES, (BEFORE, True, True)), seconds=60)
    assert "ok" in road.inside("cp-2", "curl", "--silent", "--insecure", "https://127.0.0.1:6443/readyz")
    road.inside("cp-2", "rm", PATCH)


def test_a_run_that_is_killed_in_the_last_release(road: Road, words: tuple[str, ...]) -> None:
    """It ends when the first control plane is done: its kubelet is two minor versions ahead of the others then."""
    guard(road)
    asked = ("get", "node", "cp-1", "--output=jsonpath={.status.nodeInfo.kubeletVersion} {.spec.unschedulable}")
    kubectl = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", *asked)
    with Client(road) as client:
        process = road.start("upgrade", *words)
        output = threading.Thread(target=process.communicate)
        output.start()
        done = f"v{AFTER} "
        wait_for(lambda: process.poll() is not None or road.inside("cp-1", *kubectl, check=False) == done, seconds=1500)
        running = process.poll() is None
        process.kill()
        output.join()
    assert running
    tell(client)
    found = api_servers(road)
    assert found["cp-1"] == AFTER
    assert found["cp-3"] == BETWEEN

    def is_idle(name: str) -> bool:
        return road.inside(name, "pgrep", "-f", "kubeadm upgrade", check=False) == ""

    for name in PLANES:  # what the killed run has started on a machine ends by itself
        wait_for(partial(is_idle, name), seconds=600)


def test_the_next_run_completes(road: Road, words: tuple[str, ...]) -> None:
    with Client(road) as client:
        run = road.play("upgrade", *words)
    tell(client)
    assert f"cp-1: control plane to {BETWEEN}" not in run.output
    assert min(client.running) >= NEEDED
    assert nodes(road) == dict.fromkeys(NODES, (AFTER, True, True))
    wanted = pinned(road, "cp-1")
    assert images(road) == {name: {wanted[name]} for name in STATIC_PODS}
    assert len({road.inside(name, "readlink", "/opt/attested/releases/current") for name in NODES}) == 1
    for name in NODES:
        assert road.inside(name, "kubeadm", "version", "--output=short").strip() == f"v{AFTER}"
        road.inside(name, "systemctl", "start", "attested-reattest.service")
        assert road.inside(name, "sh", "-c", LEFT, check=False) == ""


def test_what_kubeadm_installs_on_all_nodes_is_of_the_last_release(road: Road) -> None:
    pods = json.loads(road.kubectl("get", "pods", "--namespace=kube-system", "--output=json"))["items"]
    proxies = [one for one in pods if one["metadata"]["name"].startswith("kube-proxy-")]
    assert {one["spec"]["containers"][0]["image"].rpartition(":v")[2] for one in proxies} == {AFTER}
    assert len(proxies) == len(NODES)


def test_a_second_run_changes_nothing(road: Road, words: tuple[str, ...], counted: Callable[[str], None]) -> None:
    began = time.monotonic()
    assert sum(road.play("upgrade", *words).changes().values()) == 0
    counted(f"a second run took {(time.monotonic() - began) / len(NODES):.1f} s a node (aim: 20)")


def test_an_older_version_is_refused(road: Road, words: tuple[str, ...]) -> None:
    run = road.finish("upgrade", road.start("upgrade"))
    assert run.returncode != 0
    assert "RELEASE_DOWNGRADE" in run.output
    assert nodes(road) == dict.fromkeys(NODES, (AFTER, True, True))
