# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane and a worker get new releases: `prepare` changes nothing of them, `upgrade` switches them.

The tests are in the order of one lab's life and share it. Its releases have the same version of Kubernetes and other
programs; test_kubernetes_upgrade.py has two versions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.newer_bundle import newer
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_RELEASE_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

NODES = ("cp-1", "w-1")
WORDS = ("-e", '{"lab_control_planes": 1, "lab_workers": 1}')

LOOK = r"""
import hashlib, json, os, pathlib, re
def digest(path):
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()
processes = {}
for one in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        words = (one / "cmdline").read_bytes().decode(errors="replace").split("\0")
        exe = os.readlink(one / "exe")
        begun = (one / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        continue
    name = pathlib.Path(words[0]).name
    ours = any("/opt/attested/venv" in word for word in words[:2]) and not {"figures", "reattest", "renew"} & {*words}
    if ours or name in {"kubelet", "containerd", "etcd"} or name.startswith("kube-"):
        processes[one.name] = [begun, exe, digest(one / "exe"), words[:2]]
files = {}
tops = ("/etc/systemd/system", "/etc/attested", "/etc/containerd", "/usr/local/bin", "/usr/local/libexec", "/opt/cni")
for top in tops:
    for path in sorted(pathlib.Path(top).rglob("*")):
        files[str(path)] = os.readlink(path) if path.is_symlink() else digest(path) if path.is_file() else ""
print(json.dumps({"processes": processes, "files": files, "link": os.readlink("/opt/attested/venv")}))
"""
"""Programs that run (pid, start, file, digest), links, units, configuration and installed programs of a machine."""


GUARDED = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded}
spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded}
spec:
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      nodeSelector: {kubernetes.io/hostname: w-1}
      containers: [{name: one, image: "IMAGE"}]
"""
"""A Pod on the worker that may not be evicted."""


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster."""
    with road_through("lab", "init", "node", of="attested-release:127.73.0", instead=USED_LAB, words=WORDS) as road:
        yield road


def look(road: Road) -> dict[str, Any]:
    """Return what LOOK sees on each node."""
    return {node: json.loads(road.inside(node, "python3", "-c", LOOK)) for node in NODES}


def look_at_rest(road: Road) -> dict[str, Any]:
    """Wait until what makes a node of a machine has ended by itself, then return what LOOK sees."""
    asked = ("systemctl", "is-active", "attested-bootstrapper.service", "attested-init-service.service")
    wait_for(
        lambda: all({*road.inside(node, *asked, check=False).split()} == {"inactive"} for node in NODES), seconds=120
    )
    return look(road)


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[Any]]:
    """Return what differs between two looks at the nodes: before and after, by node, kind and name."""
    return {
        f"{node}: {kind} {name}": [before[node][kind].get(name), after[node][kind].get(name)]
        for node in NODES
        for kind in ("processes", "files")
        for name in sorted({*before[node][kind], *after[node][kind]})
        if before[node][kind].get(name) != after[node][kind].get(name)
    } | {
        f"{node}: link": [before[node]["link"], after[node]["link"]]
        for node in NODES
        if before[node]["link"] != after[node]["link"]
    }


def environments(seen: dict[str, Any]) -> set[str]:
    """Return the environments that the services of a node run from."""
    words = (process[3][0] for process in seen["processes"].values())
    return {word.split("/")[3] for word in words if word.startswith("/opt/attested/venv-")}


def test_prepare_changes_nothing_of_a_running_node(road: Road) -> None:
    """Twice with one release, then with another: programs that run, links, units, configuration stay as they are."""
    before = look_at_rest(road)
    for name in ("bundle-a", "bundle-b"):
        words = newer(road, name, more=f"# {name}\n")
        first, second = road.play("prepare", *words), road.play("prepare", *words)
        assert changes(before, look(road)) == {}
        assert all(first.changes()[node] > 0 for node in NODES)
        assert all(second.changes()[node] == 0 for node in NODES)
        assert "nothing on it was changed: prepared release" in second.output
    for node in NODES:
        for environment in environments(before[node]):
            road.inside(node, "test", "-f", f"/opt/attested/{environment}/.attested-complete")


def test_check_mode_of_upgrade_changes_nothing(road: Road) -> None:
    words = newer(road, "bundle-b", more="# bundle-b\n")
    before = look(road)
    assert road.play("upgrade", "--check", *words).changes()["cp-1"] > 0
    assert changes(before, look(road)) == {}


def test_upgrade_switches_the_services_and_the_kubelet(road: Road) -> None:
    words = newer(road, "bundle-b", more="# bundle-b\n")
    before = look(road)
    road.play("upgrade", *words)
    after = look(road)
    for node in NODES:
        assert after[node]["link"] != before[node]["link"]
        assert environments(after[node]) == {after[node]["link"]}
        assert programs(after[node], "kubelet").isdisjoint(programs(before[node], "kubelet"))
        assert programs(after[node], "kubelet") == {after[node]["files"]["/usr/local/bin/kubelet"]}
        assert kubernetes(after[node]) == kubernetes(before[node])
    assert unschedulable(road) == []
    assert sum(road.play("upgrade", *words).changes().values()) == 0
    assert changes(after, look(road)) == {}


def programs(seen: dict[str, Any], name: str) -> set[str]:
    """Return the SHA-256 of each running program of this name."""
    return {digest for _begun, exe, digest, _words in seen["processes"].values() if exe.rpartition("/")[2] == name}


def unschedulable(road: Road) -> list[str]:
    """Return the nodes that take no Pods."""
    nodes = json.loads(road.kubectl("get", "nodes", "--output=json"))["items"]
    return [one["metadata"]["name"] for one in nodes if one["spec"].get("unschedulable")]


def kubernetes(seen: dict[str, Any]) -> dict[str, Any]:
    """Return the static Pods and containerd."""
    return {
        pid: one
        for pid, one in seen["processes"].items()
        if not one[3][0].startswith("/opt/attested/") and not one[1].endswith("/kubelet")
    }


def test_services_that_do_not_work_are_switched_back(road: Road) -> None:
    words = newer(road, "bundle-c", file="keyservice/service.py", more="raise SystemExit(3)\n")
    road.play("prepare", *words)
    before = look(road)
    run = road.finish("upgrade", road.start("upgrade", *words))
    after = look(road)
    assert run.returncode != 0
    assert "SERVICES_NOT_HEALTHY" in run.output
    assert "attested-key-service.service" in run.output
    assert after["cp-1"]["link"] == before["cp-1"]["link"]
    assert environments(after["cp-1"]) == {before["cp-1"]["link"]}
    assert after["w-1"] == before["w-1"]


def test_a_kubelet_that_does_not_start_is_put_back(road: Road) -> None:
    words = newer(road, "bundle-d", more="# bundle-d\n", instead={"kubelet": b"#!/bin/sh\nexit 3\n"})
    road.play("prepare", *words)
    before = look(road)
    run = road.finish("upgrade", road.start("upgrade", *words))
    after = look(road)
    assert run.returncode != 0
    assert "KUBERNETES_NOT_HEALTHY" in run.output
    assert "the node was put back to" in run.output
    assert programs(after["cp-1"], "kubelet") == programs(before["cp-1"], "kubelet") != set()
    assert programs(after["w-1"], "kubelet") == programs(before["w-1"], "kubelet")
    assert kubernetes(after["cp-1"]) == kubernetes(before["cp-1"])
    assert unschedulable(road) == []


def test_a_containerd_that_does_not_start_is_put_back(road: Road) -> None:
    instead = {"containerd": b"#!/bin/sh\nexit 3\n"}
    words = newer(road, "bundle-f", more="# bundle-f\n", instead=instead)
    road.play("prepare", *words)
    before = look(road)
    run = road.finish("upgrade", road.start("upgrade", *words))
    after = look(road)
    assert "KUBERNETES_NOT_HEALTHY" in run.output
    assert "the node was put back to" in run.output
    for name in ("containerd", "kubelet"):
        assert programs(after["cp-1"], name) == programs(before["cp-1"], name) != set()
    assert kubernetes(after["w-1"]) == kubernetes(before["w-1"])
    assert unschedulable(road) == []


def test_another_containerd_comes_with_the_release(road: Road) -> None:
    words = newer(road, "bundle-g", more="# bundle-g\n", instead={"containerd": b""})
    road.play("prepare", *words)
    before = look(road)
    road.play("upgrade", *words)
    after = look(road)
    for node in NODES:
        assert programs(after[node], "containerd").isdisjoint(programs(before[node], "containerd"))
        assert programs(after[node], "containerd") == {after[node]["files"]["/usr/local/bin/containerd"]}
    assert unschedulable(road) == []
    assert sum(road.play("upgrade", *words).changes().values()) == 0


def test_pods_that_may_not_be_evicted_stop_the_upgrade(road: Road) -> None:
    images = json.loads(road.inside("cp-1", "cat", "/etc/attested/images.json"))
    image = next(one["reference"] for one in images if one["component"] == "pause")
    road.kubectl("apply", "--filename=-", given=GUARDED.replace("IMAGE", image).encode())
    road.kubectl("rollout", "status", "deployment/guarded", "--timeout=120s")
    words = (*newer(road, "bundle-e", more="# bundle-e\n"), "-e", "attested_upgrade_drain_seconds=20")
    road.play("prepare", *words)
    before = look(road)
    run = road.finish("upgrade", road.start("upgrade", *words))
    assert "NODE_NOT_DRAINED" in run.output
    assert programs(look(road)["w-1"], "kubelet") == programs(before["w-1"], "kubelet")
    assert unschedulable(road) == []
    road.kubectl("delete", "poddisruptionbudget", "guarded")
    road.play("upgrade", *words)
    assert programs(look(road)["w-1"], "kubelet").isdisjoint(programs(before["w-1"], "kubelet"))


def test_settings_of_the_kubelet_on_running_nodes(road: Road) -> None:
    """Changed, refused by the kubelet and put back, and changed back."""
    words = newer(road, "bundle-e", more="# bundle-e\n")
    road.play("upgrade", *words, *kubelet_with({"maxPods": 77}))
    assert pods_of(road) == dict.fromkeys(NODES, "77")
    run = road.finish(
        "upgrade", road.start("upgrade", *words, *kubelet_with({"maxPods": 77, "systemReserved": {"cpu": "much"}}))
    )
    assert "KUBERNETES_NOT_HEALTHY" in run.output
    assert "the kubelet runs with the files of before" in run.output
    run = road.finish("upgrade", road.start("upgrade", *words, *kubelet_with({"readOnlyPort": 10255})))
    assert "expected no readOnlyPort in attested_kubelet_configuration" in run.output
    assert pods_of(road) == dict.fromkeys(NODES, "77")
    road.play("upgrade", *words)
    assert pods_of(road) == dict.fromkeys(NODES, "110")
    assert sum(road.play("upgrade", *words).changes().values()) == 0


def kubelet_with(configuration: dict[str, Any]) -> tuple[str, ...]:
    """Return the words by which a playbook knows these settings of the kubelet."""
    return ("-e", json.dumps({"attested_kubelet_configuration": configuration}))


def pods_of(road: Road) -> dict[str, str]:
    """Return how many Pods each node takes."""
    nodes = json.loads(road.kubectl("get", "nodes", "--output=json"))["items"]
    return {one["metadata"]["name"]: one["status"]["capacity"]["pods"] for one in nodes}
