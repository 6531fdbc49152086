# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults before steps of an upgrade of a control plane and a worker, and the same command again, which continues.

The steps are the tasks of the playbook that change something, and in two of them those of the module. Faults: kill the
playbook or the module, reboot the machine, cut its network. The two releases have one version of Kubernetes and
different programs and services, and the control plane has a static Pod that kubeadm repairs.
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
    orders_left,
    put_faults_into_tasks,
    tell,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible_collections.attested.kubernetes.tests.support.road import Road, Run

NODES = PLANE, WORKER = ("cp-1", "w-1")
SERVICES = ("Run the services from the release", "bundle.services:RESTART", "bundle.services:HEALTH")
CONFIGURATION = "Upgrade the control plane and the kubelet's configuration"
CONFIGURE = "node.kubernetes:CONFIGURE"
"""Not for the worker: kubeadm changes nothing there unless the version differs."""
KUBELET = (
    "Cordon the node",
    "Drain the node",
    "Replace the kubelet",
    "node.kubernetes:KUBELET",
    "node.kubernetes:NODE",
    "node.kubernetes:END",
    "Check that the node's evidence is accepted",
    "Uncordon the node",
)
DRIFTS = (CONFIGURATION, CONFIGURE)
POINTS = (
    *((PLANE, point) for point in (*SERVICES, "Write the configuration and start the services")),
    *((WORKER, point) for point in SERVICES),
    *((PLANE, point) for point in (*DRIFTS, *KUBELET, "Set the Kubernetes version of the cluster")),
    *((WORKER, point) for point in (CONFIGURATION, *KUBELET)),
)
"""The node and the step, task or `module:point`, in the order of a run."""
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
    """The node, the step before which the fault is injected, and the fault."""

    node: str
    point: str
    fault: str

    def __str__(self) -> str:
        """Return a description."""
        return f"{self.fault} on {self.node} before {self.point}"


def cases_of(*faults: str) -> list[Case]:
    """Return all cases of ``faults``, those of one fault in the order of the steps."""
    return [Case(node, point, fault) for fault in faults for node, point in POINTS]


def case_of(seed: str) -> Case:
    """Return one of all cases, chosen by ``seed``."""
    return min(cases_of(*FAULTS), key=lambda one: hashlib.sha256(f"{seed}{one}".encode()).digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrades:
    """Prepared releases by name, each with the playbook options for it."""

    road: Road
    releases: dict[str, tuple[str, ...]]

    @classmethod
    def prepared(cls, road: Road, *names: str, words: tuple[str, ...] = ()) -> Upgrades:
        """Create a bundle for each of ``names``, prepare the nodes with it, and install fault injection."""
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

    def fail_and_complete(self, *cases: Case) -> Iterator[Case]:
        """Upgrade to releases that the nodes do not run, with a fault at each of ``cases``; yield each finished case.

        All runs of an upgrade except the last are interrupted at their case, and the next one is the same command. A
        cut network may not stop a run, which then gets all remaining faults. After a run that reaches its end, the
        remaining cases follow in an upgrade to the other release: a reboot may do the next step, such as a restart.
        """
        left, struck = list(cases), list[Case]()
        while left:
            release = self._other_release()
            words = self.releases[release]
            if any(one.point in DRIFTS for one in left):
                self.road.inside(PLANE, "sh", "-c", DRIFT)
            completed = False
            while left and not completed:
                given = left if left[0].fault == "cut" else left[:1]
                run = self._strike(given, words)
                completed, now = run.returncode == 0, given[: len(given) - self._waiting()]
                assert now or (completed and struck), f"expected {given[0]}: {run.output[-4000:]}"
                yield from struck
                struck, left = now, left[len(now) :]
            self._order(())
            self.road.play("upgrade", *words)
            self._require_whole(release)
            yield from struck
            struck = []

    def _other_release(self) -> str:
        """Return a release that a node does not run."""
        return next(one for one in self.releases if any(self.current(name) != one for name in NODES))

    def _strike(self, cases: Sequence[Case], words: tuple[str, ...]) -> Run:
        """Run the playbook with faults at ``cases``, and wait for a rebooting machine."""
        road, boots = self.road, {name: self.road.boot_id(name) for name in NODES}
        self._order(cases)
        run = road.finish("upgrade", road.start("upgrade", *words, environment=self._environment()))
        fault, has_struck = cases[0].fault, self._waiting() < len(cases)
        assert run.returncode != 0 or not (fault == "kill" and has_struck)
        if fault == "reboot" and has_struck:
            road.lab.wait_for_boot(cases[0].node, other_than=boots[cases[0].node], seconds=PATIENCE_SECONDS)
            road.wait_until_ready(cases[0].node, boot_id=road.boot_id(cases[0].node), seconds=PATIENCE_SECONDS)
        return run

    def _order(self, cases: Sequence[Case]) -> None:
        """Order the faults at ``cases``: before tasks by the playbook's callback, in modules by the machine."""
        tasks = [one for one in cases if ":" not in one.point]
        self._orders.write_text(
            json.dumps([{"host": one.node, "task": one.point, "fault": one.fault} for one in tasks]), encoding="utf-8"
        )
        for node in NODES:
            faults = {one.point: one.fault.replace("kill", attested_matrix.END) for one in cases if one.node == node}
            tell(self.road, node, *(Order(point=point, fault=fault) for point, fault in faults.items() if ":" in point))

    def _waiting(self) -> int:
        """Return the number of remaining orders."""
        return len(json.loads(self._orders.read_text(encoding="utf-8"))) + sum(
            orders_left(self.road, node) for node in NODES
        )

    def _environment(self) -> dict[str, str]:
        """Return the environment variables for faults before tasks."""
        given = {"enter": str(self.road.lab.directory / "podman"), "orders": str(self._orders)}
        return {
            "ATTESTED_STRIKE": json.dumps(given),
            "ANSIBLE_CALLBACKS_ENABLED": "strike",
            "ANSIBLE_CALLBACK_PLUGINS": str(PLUGINS),
        }

    @property
    def _orders(self) -> Path:
        return self.road.lab.directory / "strike.json"

    def _require_whole(self, release: str) -> None:
        """Fail unless both nodes run ``release``, are schedulable and attested, without leftovers."""
        for name in NODES:
            assert self.current(name) == release
            assert self.road.inside(name, "sh", "-c", LEFT, check=False) == ""
            assert is_ready(self.road, name)
            self.road.inside(name, "systemctl", "start", "attested-reattest.service")
        assert "drifted" not in self.road.inside(PLANE, "cat", SCHEDULER)


def is_ready(road: Road, name: str) -> bool:
    """Return whether a Node is Ready and schedulable."""
    template = "{.spec.unschedulable} {.status.conditions[?(@.type=='Ready')].status}"
    words = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "node", name, f"--output=jsonpath={template}")
    return road.inside(PLANE, *words, check=False) == " True"
