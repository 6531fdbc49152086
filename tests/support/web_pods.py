# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Pod on each node of a lab that says the node's name to whoever asks it, and can ask others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.attested.kubernetes.tests.support.road import Road

NAMESPACE = "lab-tour"
"""The namespace whose Pods may run on control planes, as the site of a lab says."""
IN_IT = f"--namespace={NAMESPACE}"
PORT = 8080


def start(road: Road, nodes: Iterable[str]) -> dict[str, list[str]]:
    """Run one on each of the nodes; return the addresses of each by node."""
    road.kubectl("rollout", "status", "daemonset/flannel", "--namespace=kube-system", "--timeout=300s")
    road.kubectl("create", "namespace", NAMESPACE)
    pods = {"apiVersion": "v1", "kind": "List", "items": [pod(node) for node in nodes]}
    road.kubectl("apply", IN_IT, "-f", "-", given=json.dumps(pods).encode())
    road.kubectl("wait", IN_IT, "--for=condition=Ready", "--timeout=300s", "pod", "--selector=app=web")
    return addresses(road)


def addresses(road: Road) -> dict[str, list[str]]:
    """Return the addresses of each by node; none while it starts."""
    listed = json.loads(road.kubectl("get", IN_IT, "pods", "--selector=app=web", "--output=json"))["items"]
    return {one["spec"]["nodeName"]: [address["ip"] for address in one["status"].get("podIPs", [])] for one in listed}


def pod(node: str) -> dict[str, object]:
    """Return the one of a node."""
    container = {
        "name": "web",
        "image": "localhost/attested-tour:1",
        "imagePullPolicy": "Never",
        "command": ["/bin/busybox", "sh", "-c", f"echo {node} > /tmp/index.html && exec httpd -f -p {PORT} -h /tmp"],
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"web-{node}", "labels": {"app": "web"}},
        "spec": spec,
    }


def answer(road: Road, asking: str, address: str, *, port: int = PORT) -> str:
    """Return what the Pod of one node hears from an address; empty for nothing."""
    host = f"[{address}]" if ":" in address else address
    ask = ("busybox", "timeout", "5", "wget", "-q", "-O-", f"http://{host}:{port}/")
    words = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "exec", IN_IT, f"web-{asking}", "--", *ask)
    return road.inside(road.plane, *words, check=False).strip()


def wait_for_answer(road: Road, asking: str, address: str, *nodes: str, seconds: float) -> None:
    """Wait until the Pod of one node hears one of the nodes' names from an address."""
    wait_for(lambda: answer(road, asking, address) in nodes, seconds=seconds)
