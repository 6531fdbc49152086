# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three control planes and a worker go from Kubernetes 1.35 to 1.36, while a client asks and a Pod is guarded.

The programs of both versions are built, which takes a quarter of an hour where the second is not there yet. The tests
are in the order of one lab's life and share it.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_UPGRADE_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

PLANES = ("cp-1", "cp-2", "cp-3")
NODES = (*PLANES, "w-1")
BEFORE, AFTER = "1.35.4", "1.36.3"
WORDS = ("-e", '{"lab_control_planes": 3, "lab_workers": 1}')
STATIC_PODS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
LEFT = ("/etc/kubernetes/tmp", "/var/lib/attested/kubeadm/upgrade")
"""What is there while an upgrade has not ended."""
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
    bundle = {"attested_kubernetes_version": AFTER, "attested_bundle": str(road.lab.directory / "bundles" / "newer")}
    chosen = ("-e", json.dumps(bundle | {"attested_bundle_on_node": "/srv/bundles/newer"}))
    road.play("bundle", *chosen)
    road.play("prepare", *chosen)
    return chosen


class Client:
    """Asks each API server four times a second whether it is ready, until the block ends."""

    def __init__(self, road: Road) -> None:
        self._road = road
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.gaps: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

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
        program = str(self._road.lab.directory / "podman")
        asked = ["curl", "--silent", "--fail", "--insecure", "--max-time", "1", "https://127.0.0.1:6443/readyz"]
        return subprocess.run([program, "exec", plane, *asked], capture_output=True, check=False).returncode == 0


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


def pinned(road: Road, machine: str) -> dict[str, str]:
    rows: list[dict[str, Any]] = json.loads(road.inside(machine, "cat", "/etc/attested/images.json"))
    return {row["component"]: f"{row['reference']}@{row['digest']}" for row in rows}


def test_the_plan_changes_nothing(road: Road, words: tuple[str, ...]) -> None:
    dns = {"minAvailable": "100%", "selector": {"matchLabels": {"k8s-app": "kube-dns"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "dns"}, "spec": dns}
    road.kubectl("apply", "--namespace=kube-system", "--filename=-", given=json.dumps(budget).encode())
    time.sleep(5)
    run = road.finish("upgrade", road.start("upgrade", "--check", "-e", "attested_upgrade_drain_seconds=10", *words))
    road.kubectl("delete", "poddisruptionbudget", "dns", "--namespace=kube-system")
    assert run.returncode != 0
    assert "PodDisruptionBudget kube-system/dns allows no eviction now" in run.output
    assert "NODE_NOT_DRAINED" in run.output
    run = road.play("upgrade", "--check", *words)
    for name in NODES:
        assert f"{name}: {BEFORE} -> {AFTER}, Pods are drained" in run.output
    assert nodes(road) == dict.fromkeys(NODES, (BEFORE, True, True))


def test_an_api_server_that_cannot_start_is_put_back(road: Road, words: tuple[str, ...]) -> None:
    """On the second control plane, by a patch of kubeadm that gives it an argument which it does not know."""
    road.inside("cp-2", "sh", "-c", f"cat > {PATCH}", given=BROKEN.encode())
    run = road.finish("upgrade", road.start("upgrade", *words))
    assert run.returncode != 0
    assert "KUBERNETES_NOT_HEALTHY" in run.output
    assert f"the node was put back to {BEFORE}" in run.output
    expected = {name: (AFTER if name == "cp-1" else BEFORE, True, True) for name in NODES}
    wait_for(lambda: nodes(road) == expected, seconds=60)
    assert "ok" in road.inside("cp-2", "curl", "--silent", "--insecure", "https://127.0.0.1:6443/readyz")
    road.inside("cp-2", "rm", PATCH)


def test_the_next_run_completes(road: Road, words: tuple[str, ...]) -> None:
    with Client(road) as client:
        road.play("upgrade", *words)
    print(f"API: {len(client.gaps)} gaps, {sum(client.gaps):.1f} s in total")
    assert nodes(road) == dict.fromkeys(NODES, (AFTER, True, True))
    wanted = pinned(road, "cp-1")
    assert images(road) == {name: {wanted[name]} for name in STATIC_PODS}
    for name in NODES:
        assert road.inside(name, "kubeadm", "version", "--output=short").strip() == f"v{AFTER}"
        road.inside(name, "systemctl", "start", "attested-reattest.service")
        assert (
            road.inside(name, "sh", "-c", "ls -d /etc/kubernetes/tmp /var/lib/attested/kubeadm/upgrade", check=False)
            == ""
        )


def test_a_second_run_changes_nothing(road: Road, words: tuple[str, ...]) -> None:
    assert sum(road.play("upgrade", *words).changes().values()) == 0


def test_an_older_version_is_refused(road: Road, words: tuple[str, ...]) -> None:
    run = road.finish("upgrade", road.start("upgrade"))
    assert run.returncode != 0
    assert "RELEASE_DOWNGRADE" in run.output
    assert nodes(road) == dict.fromkeys(NODES, (AFTER, True, True))
