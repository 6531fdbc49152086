# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before a step of an upgrade of a control plane or a worker, and the same command again, which completes it.

The steps are the tasks of the playbook that change something, and within two of them those of the module. The playbook
or the module is killed, the machine is rebooted, or its network is cut. The two releases have one version of Kubernetes
and other programs and services, and the control plane has a static Pod that kubeadm repairs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support import attested_matrix
from ansible_collections.attested.kubernetes.tests.support.newer_bundle import newer
from ansible_collections.attested.kubernetes.tests.support.striking import (
    FAULTS,
    PATIENCE_SECONDS,
    Order,
    put_faults_into_tasks,
    struck_on,
    tell,
)

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

NODES = PLANE, WORKER = ("cp-1", "w-1")
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
    *((PLANE, point) for point in (*TASKS, *OF_CONTROL_PLANE, *MODULES)),
    *((WORKER, point) for point in (*TASKS, *MODULES) if point != CONFIGURE),
]
PLUGINS = Path(attested_matrix.__file__).parent / "callback_plugins"
LEFT = "ls -d /etc/kubernetes/tmp /var/lib/attested/kubeadm/upgrade 2>/dev/null"
SCHEDULER = "/etc/kubernetes/manifests/kube-scheduler.yaml"
DRIFT = f"""
set -e
image=$(ctr --namespace k8s.io images list --quiet | grep /kube-scheduler | head -n 1)
ctr --namespace k8s.io images tag --force "$image" localhost/drifted-scheduler:1 >/dev/null
sed -i "s|image: .*|image: localhost/drifted-scheduler:1|" {SCHEDULER}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """The node, the step before which the fault comes, and the fault."""

    node: str
    point: str
    fault: str

    def __str__(self) -> str:
        """Return it as a person says it."""
        return f"{self.fault} on {self.node} before {self.point}"


def case_of(seed: str) -> Case:
    """Return one of all cases, chosen by ``seed``."""
    cases = [Case(node, point, fault) for node, point in POINTS for fault in FAULTS]
    return min(cases, key=lambda one: hashlib.sha256(f"{seed}{one}".encode()).digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrades:
    """Prepared releases by their names, each with the words of the playbook that go to it."""

    road: Road
    releases: dict[str, tuple[str, ...]]

    @classmethod
    def prepared(cls, road: Road, *names: str, words: tuple[str, ...] = ()) -> Upgrades:
        """Make a bundle for each of ``names``, prepare the nodes with it, and let faults come into their modules."""
        releases = {}
        for name in names:
            chosen = (*newer(road, f"bundle-{name}", more=f"# {name}\n"), *words)
            road.play("prepare", *chosen)
            manifest = (road.lab.directory / f"bundle-{name}" / "manifest.json").read_bytes()
            releases[hashlib.sha256(manifest).hexdigest()[:12]] = chosen
        put_faults_into_tasks(road, *NODES)
        return cls(road=road, releases=releases)

    def current(self, node: str) -> str:
        """Return the release that a node runs."""
        return self.road.inside(node, "readlink", "/opt/attested/releases/current").strip()

    def fail_and_complete(self, case: Case) -> None:
        """Upgrade to a release that ``case.node`` does not run; strike; run the same command again, and look."""
        current = self.current(case.node)
        release = next(one for one in self.releases if one != current)
        if case.point in DRIFTS:
            self.road.inside(PLANE, "sh", "-c", DRIFT)
        self._strike(case, self.releases[release])
        self.road.play("upgrade", *self.releases[release])
        for name in NODES:
            assert self.current(name) == release
            assert self.road.inside(name, "sh", "-c", LEFT, check=False) == ""
            assert is_ready(self.road, name)
            self.road.inside(name, "systemctl", "start", "attested-reattest.service")
        assert "drifted" not in self.road.inside(PLANE, "cat", SCHEDULER)

    def _strike(self, case: Case, words: tuple[str, ...]) -> None:
        """Run the playbook until the fault has come, and wait until a rebooted machine is back."""
        road, boot = self.road, self.road.boot_id(case.node)
        note = road.lab.directory / "struck"
        note.unlink(missing_ok=True)
        environment = {}
        if case.point not in MODULES:
            environment = of_task(road, case, note)
        else:
            fault = case.fault.replace("kill", attested_matrix.END)
            tell(road, case.node, Order(point=case.point, fault=fault))
        run = road.finish("upgrade", road.start("upgrade", *words, environment=environment))
        assert note.exists() if environment else struck_on(road, case.node), run.output[-4000:]
        if case.fault == "kill":
            assert run.returncode != 0
        if case.fault == "reboot":
            road.lab.wait_for_boot(case.node, other_than=boot, seconds=PATIENCE_SECONDS)
            road.wait_until_ready(case.node, boot_id=road.boot_id(case.node), seconds=PATIENCE_SECONDS)


def of_task(road: Road, case: Case, note: Path) -> dict[str, str]:
    """Return the variables by which the playbook strikes before a task."""
    enter = str(road.lab.directory / "podman")
    order = {"host": case.node, "task": case.point, "fault": case.fault, "enter": enter, "note": str(note)}
    return {
        "ATTESTED_STRIKE": json.dumps(order),
        "ANSIBLE_CALLBACKS_ENABLED": "strike",
        "ANSIBLE_CALLBACK_PLUGINS": str(PLUGINS),
    }


def is_ready(road: Road, name: str) -> bool:
    """Say whether a Node is Ready and takes Pods."""
    template = "{.spec.unschedulable} {.status.conditions[?(@.type=='Ready')].status}"
    words = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "node", name, f"--output=jsonpath={template}")
    return road.inside(PLANE, *words, check=False) == " True"
