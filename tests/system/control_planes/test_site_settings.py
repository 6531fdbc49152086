# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site's settings on running nodes are applied, refused by name, restored if a program does not start, and removed.

Arguments of the API server and etcd by the playbook `node`, settings of the kubelet and containerd by `upgrade`. The
tests are in the order of one lab's life and share it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_SETTINGS_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

WORDS = ("-e", '{"lab_control_planes": 1, "lab_workers": 1}')
SERVER = "kube-apiserver"
SECONDS = 600


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    with road_through("lab", "init", "node", of="attested-settings:127.77.0", instead=USED_LAB, words=WORDS) as road:
        yield road


@pytest.fixture(scope="module")
def before(road: Road) -> dict[str, list[str]]:
    """Return how each program ran when the site said nothing."""
    return {name: command_of(road, name) for name in (SERVER, "etcd")}


def command_of(road: Road, component: str) -> list[str]:
    """Return how the control plane's program is running now, in an order that does not matter to it."""
    found = command_if_ready(road, component)
    assert found
    return found


def command_if_ready(road: Road, component: str) -> list[str]:
    """Return the same, or nothing where the program is not ready or the API server does not answer."""
    config = ("--kubeconfig=/etc/kubernetes/admin.conf", "--namespace=kube-system", "--output=json")
    said = road.inside("cp-1", "kubectl", *config, "get", "pod", f"{component}-cp-1", check=False)
    if not said:
        return []
    pod = json.loads(said)
    ready = all(one["ready"] for one in pod["status"]["containerStatuses"])
    return sorted(pod["spec"]["containers"][0]["command"]) if ready else []


def words(**arguments: dict[str, object]) -> tuple[str, ...]:
    """Return the words by which `node` has these arguments applied."""
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    return (
        "--limit=cp-1",
        "-e",
        json.dumps({"attested_control_plane_arguments": given, "attested_authenticators": []}),
    )


def joiners(road: Road) -> str:
    """Return what later control planes are made from."""
    return road.kubectl("get", "configmap", "kubeadm-config", "--namespace=kube-system", "--output=yaml")


WANTED = words(kube_apiserver={"goaway-chance": 0.001}, etcd={"max-wals": 4})


def test_check_mode_names_them_and_changes_nothing(road: Road, before: dict[str, list[str]]) -> None:
    foreseen = road.play("node", *WANTED, "--check", "--diff").output
    assert "kube-apiserver: --goaway-chance=0.001" in foreseen
    assert "etcd: --max-wals=4" in foreseen
    assert command_of(road, SERVER) == before[SERVER]


def test_they_come_and_a_second_run_changes_nothing(road: Road, before: dict[str, list[str]]) -> None:
    assert road.play("node", *WANTED).changes()["cp-1"] == 1
    assert set(command_of(road, SERVER)) - set(before[SERVER]) == {"--goaway-chance=0.001"}
    assert set(command_of(road, "etcd")) - set(before["etcd"]) == {"--max-wals=4"}
    assert "goaway-chance" in joiners(road)
    assert set(road.play("node", *WANTED).changes().values()) == {0}


def test_one_that_does_not_start_is_put_back(road: Road) -> None:
    running = command_of(road, SERVER)
    broken = words(kube_apiserver={"goaway-chance": 0.001, "no-such-argument": 1}, etcd={"max-wals": 4})
    failed = road.finish("node", road.start("node", *broken))
    assert failed.returncode != 0
    assert "CONTROL_PLANE_COMPONENT_UNHEALTHY" in failed.output
    # that it is ready may be of before it was stopped, until the kubelet has told the API server that is back
    wait_for(lambda: command_if_ready(road, SERVER) == running, seconds=SECONDS)
    assert "no-such-argument" not in joiners(road)


def test_they_go_again(road: Road, before: dict[str, list[str]]) -> None:
    assert road.play("node", *words()).changes()["cp-1"] == 1
    assert {name: command_of(road, name) for name in before} == before
    assert "goaway-chance" not in joiners(road)
    assert set(road.play("node", *words()).changes().values()) == {0}


NODES = ("cp-1", "w-1")
KUBELET = {"maxPods": 77}
CONTAINERD = {"50-lines": {"plugins": {"io.containerd.grpc.v1.cri": {"max_container_log_line_size": 65536}}}}


def of_nodes(kubelet: dict[str, Any], containerd: dict[str, Any]) -> tuple[str, ...]:
    """Return the words by which `upgrade` applies these settings."""
    return "-e", json.dumps({"attested_kubelet_configuration": kubelet, "attested_containerd_drop_ins": containerd})


def running(road: Road) -> dict[str, tuple[str, int]]:
    """Return how many Pods each kubelet takes, and the longest line of a log of each containerd."""
    nodes = json.loads(road.kubectl("get", "nodes", "--output=json"))["items"]
    pods = {one["metadata"]["name"]: one["status"]["capacity"]["pods"] for one in nodes}
    infos = {node: json.loads(road.inside(node, "crictl", "info")) for node in NODES}
    return {node: (pods[node], infos[node]["config"]["maxContainerLogLineSize"]) for node in NODES}


def test_kubelets_and_containerd_take_settings_and_give_them_back(road: Road) -> None:
    at_first = running(road)
    road.play("upgrade", *of_nodes(KUBELET, CONTAINERD))
    assert running(road) == dict.fromkeys(NODES, ("77", 65536))
    assert set(road.play("upgrade", *of_nodes(KUBELET, CONTAINERD)).changes().values()) == {0}
    road.play("upgrade", *of_nodes({}, {}))
    assert running(road) == at_first
    assert "77" not in {pods for pods, _lines in at_first.values()}


@pytest.mark.parametrize(
    ("playbook", "words", "named"),
    [
        pytest.param("node", words(kube_apiserver={"anonymous-auth": True}), "no anonymous-auth of", id="API server"),
        pytest.param("upgrade", of_nodes({"readOnlyPort": 10255}, {}), "no readOnlyPort in", id="kubelet"),
        pytest.param("upgrade", of_nodes({}, {"mine": {"root": "/srv"}}), "drop_ins.mine", id="containerd"),
    ],
)
def test_a_setting_that_attestation_depends_on_is_refused_by_name(
    road: Road, playbook: str, words: tuple[str, ...], named: str
) -> None:
    at_first = running(road), command_of(road, SERVER)
    failed = road.finish(playbook, road.start(playbook, *words))
    assert failed.returncode != 0
    assert "CONFIG_INVALID" in failed.output
    assert named in " ".join(failed.output.split())
    assert (running(road), command_of(road, SERVER)) == at_first
