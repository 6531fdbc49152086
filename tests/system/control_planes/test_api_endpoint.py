# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three control planes and a worker with `attested_api_proxy`: the one that it uses goes, and its kubelet stays ready.

The tests are in the order of one lab's life and share it. It was written without a lab at hand; docs/limitations.md
says so until it was run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_API_ENDPOINT_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

MADE = ("lab", "init", "node")
WORKER = "w-1"
MEMBERS = ("cp-1", "cp-2", "cp-3")
WORDS = ("-e", '{"lab_control_planes": 3, "lab_workers": 1, "attested_api_proxy": true}')
LEASE = ("get", "lease", WORKER, "--namespace=kube-node-lease", "--output=jsonpath={.spec.renewTime}")


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster."""
    with road_through(*MADE, of="attested-api-endpoint:127.69.0", instead=USED_LAB, words=WORDS) as road:
        yield road


def kubectl(road: Road, node: str, *words: str) -> str:
    """Ask the API server of one control plane, on it."""
    config = ("--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://127.0.0.1:6443", "--request-timeout=20s")
    return road.inside(node, "kubectl", *config, *words, check=False)


def used(road: Road) -> str:
    """Return the address that answered the worker's proxy last, as `attested status` says."""
    said = json.loads(road.inside(WORKER, "attested", "status", "--json", check=False) or "{}").get("api") or ""
    return said.partition(" answered last")[0] if " answered last" in said else ""


def address(road: Road, node: str) -> str:
    """Return where the API server of ``node`` listens, as its own cluster says."""
    template = "--output=jsonpath={.status.addresses[?(@.type=='InternalIP')].address}"
    return f"{kubectl(road, 'cp-2', 'get', 'node', node, template)}:6443"


def test_the_kubelet_and_kubeadm_dial_loopback_and_prove_the_endpoints_name(road: Road) -> None:
    """Port and name stand in kubelet.conf; only loopback listens there; control planes have no proxy."""
    config = road.inside(WORKER, "cat", "/etc/kubernetes/kubelet.conf")
    assert '"server": "https://127.0.0.1:6444"' in config
    assert '"tls-server-name": "api.lab.test"' in config
    listeners = road.inside(WORKER, "ss", "-Hltn", "sport = :6444").split()
    assert "127.0.0.1:6444" in listeners
    for node in MEMBERS:
        assert road.inside(node, "ss", "-Hltn", "sport = :6444") == ""


def test_the_unit_is_confined_and_learns_all_three(road: Road) -> None:
    """It runs under a user that exists no longer than it does; the list is the cluster's own."""
    road.inside(WORKER, "systemd-analyze", "security", "--no-pager", "--threshold=30", "attested-api-endpoint.service")
    road.inside(WORKER, "systemctl", "start", "attested-api-endpoint-list.service")
    kept = json.loads(road.inside(WORKER, "cat", "/var/lib/attested-api-endpoint/control-planes.json"))
    assert kept["control_planes"] == sorted(address(road, node) for node in MEMBERS)
    wait_for(lambda: used(road) in kept["control_planes"])


def test_a_second_run_changes_nothing(road: Road) -> None:
    """Neither of what is installed nor of the node."""
    for playbook in ("prepare", "node"):
        changes = road.play(playbook, *WORDS).changes()
        assert changes[WORKER] == 0, (playbook, changes)


def test_the_loss_of_the_one_that_is_used_leaves_the_worker_ready(road: Road) -> None:
    """Its lease is renewed by another one long before anybody would call it lost; the first comes back after a boot."""
    lost = next(node for node in MEMBERS if address(road, node) == used(road))
    left = next(node for node in MEMBERS if node != lost)
    road.inside(lost, "systemctl", "stop", "kubelet", "containerd", "attested-join-service", "attested-key-service")
    road.inside(lost, "sh", "-c", "for p in $(pgrep -f '^(kube-|etcd )'); do kill -9 $p; done")
    wait_for(lambda: kubectl(road, left, *LEASE) != "", seconds=300)
    before = kubectl(road, left, *LEASE)
    wait_for(lambda: kubectl(road, left, *LEASE) not in ("", before))
    assert used(road) != ""
    assert used(road) != address(road, lost)
    ready = "--output=jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    assert kubectl(road, left, "get", "node", WORKER, ready) == "True"
    boot = road.reboot(lost)
    road.wait_until_ready(lost, boot_id=boot)
