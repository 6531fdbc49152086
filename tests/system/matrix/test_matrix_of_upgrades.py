# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before each step of an upgrade of a control plane and a worker: the same command completes it.

The steps are the tasks of the playbook that change something, and within two of them those of the module. The playbook
or the module is killed, the machine is rebooted, or its network is cut. The two releases have one version of Kubernetes
and other programs and services, and the control plane has a static Pod that kubeadm puts right: one of two versions is
test_kubernetes_upgrade.py.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support import attested_matrix
from ansible_collections.attested.kubernetes.tests.support.newer_bundle import newer
from ansible_collections.attested.kubernetes.tests.support.records import UPGRADES, recorded
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.striking import (
    PATIENCE_SECONDS,
    Order,
    put_faults_into_tasks,
    struck_on,
    tell,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_UPGRADES_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

NODES = ("cp-1", "w-1")
WORDS = ("-e", '{"lab_control_planes": 1, "lab_workers": 1}')
TASKS = (
    "Run the services from the release",
    "Upgrade the control plane and the kubelet's configuration",
    "Cordon the node",
    "Drain the node",
    "Replace the kubelet",
    "Check that the node's evidence is accepted",
    "Uncordon the node",
)
OF_CONTROL_PLANE = ("Write the configuration and start the services", "Set the Kubernetes version of the cluster")
MODULES = [
    f"{module}:{point}" for module, (_owner, methods) in attested_matrix.STEPS.items() for point in methods.values()
]
CONFIGURE = "node.kubernetes:CONFIGURE"
"""Not of the worker: kubeadm has nothing to do there unless the version is another one."""
DRIFTS = ("Upgrade the control plane and the kubelet's configuration", CONFIGURE)
POINTS = [
    *(("cp-1", point) for point in (*TASKS, *OF_CONTROL_PLANE, *MODULES)),
    *(("w-1", point) for point in (*TASKS, *MODULES) if point != CONFIGURE),
]
PLUGINS = Path(attested_matrix.__file__).parent / "callback_plugins"
FAULTS = ("kill", "reboot", "cut")
LEFT = "ls -d /etc/kubernetes/tmp /var/lib/attested/kubeadm/upgrade 2>/dev/null"
SCHEDULER = "/etc/kubernetes/manifests/kube-scheduler.yaml"
DRIFT = f"""
set -e
image=$(ctr --namespace k8s.io images list --quiet | grep /kube-scheduler | head -n 1)
ctr --namespace k8s.io images tag --force "$image" localhost/drifted-scheduler:1 >/dev/null
sed -i "s|image: .*|image: localhost/drifted-scheduler:1|" {SCHEDULER}
"""


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster."""
    with road_through("lab", "init", "node", of="attested-upgrades:127.79.0", instead=USED_LAB, words=WORDS) as road:
        yield road


@pytest.fixture(scope="module")
def releases(road: Road) -> Mapping[str, tuple[str, ...]]:
    """Two prepared releases: the words of each by its name. Each case upgrades to the other one."""
    found = {}
    for name in ("even", "odd"):
        words = newer(road, f"bundle-{name}", more=f"# {name}\n")
        road.play("prepare", *words)
        manifest = (road.lab.directory / f"bundle-{name}" / "manifest.json").read_bytes()
        found[hashlib.sha256(manifest).hexdigest()[:12]] = words
    put_faults_into_tasks(road, *NODES)
    return found


def is_ready(road: Road, name: str) -> bool:
    """Say whether a Node is Ready and takes Pods."""
    template = "{.spec.unschedulable} {.status.conditions[?(@.type=='Ready')].status}"
    words = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "node", name, f"--output=jsonpath={template}")
    return road.inside("cp-1", *words, check=False) == " True"


def strike(road: Road, node: str, order: Order, words: tuple[str, ...]) -> None:
    """Run the playbook until the fault has come, and wait until a rebooted machine is back."""
    boot = road.boot_id(node)
    note = road.lab.directory / "struck"
    note.unlink(missing_ok=True)
    environment = {}
    if order.point not in MODULES:
        environment = of_task(road, node, order, note)
    else:
        tell(road, node, Order(point=order.point, fault=order.fault.replace("kill", attested_matrix.END)))
    run = road.finish("upgrade", road.start("upgrade", *words, environment=environment))
    assert note.exists() if environment else struck_on(road, node), run.output[-4000:]
    if order.fault == "kill":
        assert run.returncode != 0
    if order.fault == "reboot":
        road.lab.wait_for_boot(node, other_than=boot, seconds=PATIENCE_SECONDS)
        road.wait_until_ready(node, boot_id=road.boot_id(node), seconds=PATIENCE_SECONDS)


def of_task(road: Road, node: str, order: Order, note: Path) -> dict[str, str]:
    """Return the variables by which the playbook strikes before a task."""
    enter = str(road.lab.directory / "podman")
    told = {"host": node, "task": order.point, "fault": order.fault, "enter": enter, "note": str(note)}
    return {
        "ATTESTED_STRIKE": json.dumps(told),
        "ANSIBLE_CALLBACKS_ENABLED": "strike",
        "ANSIBLE_CALLBACK_PLUGINS": str(PLUGINS),
    }


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("node", "point"), POINTS)
def test_an_upgrade_goes_on_after_a_fault(
    road: Road, releases: Mapping[str, tuple[str, ...]], node: str, point: str, fault: str
) -> None:
    current = road.inside(node, "readlink", "/opt/attested/releases/current").strip()
    release = next(one for one in releases if one != current)
    with recorded(f"{node}: {point}", fault, kind=UPGRADES):
        if point in DRIFTS:
            road.inside("cp-1", "sh", "-c", DRIFT)
        strike(road, node, Order(point=point, fault=fault), releases[release])
        road.play("upgrade", *releases[release])
        for name in NODES:
            assert road.inside(name, "readlink", "/opt/attested/releases/current").strip() == release
            assert road.inside(name, "sh", "-c", LEFT, check=False) == ""
            assert is_ready(road, name)
            road.inside(name, "systemctl", "start", "attested-reattest.service")
        assert "drifted" not in road.inside("cp-1", "cat", SCHEDULER)


def test_a_run_afterwards_changes_nothing(road: Road, releases: Mapping[str, tuple[str, ...]]) -> None:
    current = road.inside("cp-1", "readlink", "/opt/attested/releases/current").strip()
    assert sum(road.play("upgrade", *releases[current]).changes().values()) == 0
    wait_for(lambda: all(is_ready(road, name) for name in NODES))
