# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Six machines that were prepared, one init against the first, and nobody runs anything on the other five.

The tests are in the order of one lab's life and share it. They look with etcdctl, kubectl, systemctl and tpm2-tools.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.etcdctl import learners_of
from ansible_collections.attested.kubernetes.tests.support.road import Road, assert_one_lock_event, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_BY_THEMSELVES_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through `lab`; it is used and left."""

CONTROL_PLANES = ("cp-1", "cp-2", "cp-3")
WORKERS = ("w-1", "w-2", "w-3")
NODES = (*CONTROL_PLANES, *WORKERS)
FOLLOWERS = NODES[1:]
WORDS = ("-e", '{"lab_bootstrapper": true, "lab_control_planes": 3, "lab_workers": 3}')
UNIT = "attested-bootstrapper.service"
SERVICES = ("attested-unlock", "attested-key-service", "attested-join-service")
WEBHOOK, WEBHOOK_FILE = "https://10.89.7.1:9/audit", "/etc/kubernetes/attested/audit-webhook.yaml"
API_SERVER = "/etc/kubernetes/manifests/kube-apiserver.yaml"
SECONDS = 900.0
"""Three control planes join one after the other, on whatever this machine is; nothing fails for being slow."""


@pytest.fixture(scope="module")
def prepared() -> Iterator[Road]:
    """Machines with bundle, pins and boot unit, and nothing else; nobody serves the audit webhook of the site."""
    with road_through(of="attested-themselves:127.67.0", instead=USED_LAB, words=WORDS) as road:
        if not os.environ.get(USED_LAB):
            settings = road.site / "group_vars" / "nodes" / "audit.yml"
            settings.write_text(f"attested_audit_webhook: {{url: {WEBHOOK}}}\n")
            road.play("lab", *WORDS)
        yield road


def test_all_wait_and_no_lock_is_taken(prepared: Road) -> None:
    """Nobody has made anything yet."""
    for node in NODES:
        wait_for_unit(prepared, node, "active")
        assert prepared.inside(node, "find", "/run/attested/locked", check=False) == ""


def test_one_init_and_all_six_are_ready(prepared: Road) -> None:
    """The other five ask all the time; control planes take turns."""
    prepared.play("init", *WORDS)
    for node in NODES:
        prepared.wait_until_ready(node, boot_id=prepared.boot_id(node), seconds=SECONDS)
    labelled = prepared.kubectl("get", "nodes", "-l=node-role.kubernetes.io/control-plane", "--output=name")
    assert labelled.split() == [f"node/{node}" for node in CONTROL_PLANES]


def test_etcd_has_three_members_and_no_learner(prepared: Road) -> None:
    """A learner does not count for a quorum."""
    assert learners_of(prepared) == dict.fromkeys(CONTROL_PLANES, False)


def test_every_api_server_sends_its_audit_events_to_the_webhook_of_the_site(prepared: Road) -> None:
    """The first was restarted with it; the others started with it, by the file in their ticket."""
    argument = f"--audit-webhook-config-file={WEBHOOK_FILE}"
    for node in CONTROL_PLANES:
        words = ("--namespace=kube-system", "--output=jsonpath={.spec.containers[0].command}")
        assert argument in prepared.kubectl("get", "pod", f"kube-apiserver-{node}", *words)
        assert WEBHOOK in prepared.inside(node, "cat", WEBHOOK_FILE)
    restarted = [node for node in CONTROL_PLANES if "restarted-at" in prepared.inside(node, "cat", API_SERVER)]
    assert restarted == ["cp-1"]


def test_each_became_a_node_by_its_own_way_and_its_unit_has_ended(prepared: Road) -> None:
    """One lock event each; port 9000 is gone."""
    for node in NODES:
        wait_for_unit(prepared, node, "inactive")
        assert_one_lock_event(prepared, node)
        contender = "init" if node == "cp-1" else "join"
        assert f'"{contender}"' in prepared.inside(node, "cat", "/run/attested/claim.json")
        assert ":9000" not in prepared.inside(node, "ss", "-ltn")


def test_every_control_plane_admits_machines(prepared: Road) -> None:
    """A worker that was rebooted asks one of those that have joined, while the first one is silent."""
    for node in CONTROL_PLANES:
        assert active(prepared, node) == ["active"] * len(SERVICES)
    prepared.inside("cp-1", "systemctl", "stop", "attested-join-service")
    try:
        boot = prepared.reboot("w-1")
        prepared.wait_until_ready("w-1", boot_id=boot, seconds=SECONDS)
    finally:
        prepared.inside("cp-1", "systemctl", "start", "attested-join-service")
    assert_one_lock_event(prepared, "w-1")


def test_the_playbooks_find_nothing_to_do_but_to_write_down_what_was_assigned(prepared: Road) -> None:
    """The road over ssh goes on where the machines stand; which disk is whose was decided while nobody looked."""
    prepared.play("node", *WORDS)
    for node in FOLLOWERS:
        assert "attested_disk_id: " in (prepared.site / "host_vars" / node / "identity.yml").read_text()
    for playbook in ("init", "node"):
        changes = prepared.play(playbook, *WORDS).changes()
        assert set(changes.values()) == {0}, changes
    prepared.play("verify")


def test_all_are_rebooted_and_come_back_alone_as_who_they_were(prepared: Road) -> None:
    """TPMs reset: control planes open their keys, workers fetch their tickets again; nobody is made or joined anew."""
    before = identities(prepared)
    boots = {node: prepared.reboot(node) for node in NODES}
    for node in NODES:
        prepared.wait_until_ready(node, boot_id=boots[node], seconds=SECONDS)
        assert_one_lock_event(prepared, node)
        wait_for_unit(prepared, node, "inactive")
        way = "KUBELET" if node in CONTROL_PLANES else "REJOIN"
        assert way in prepared.inside(node, "journalctl", "--boot", "--unit", UNIT)
    assert identities(prepared) == before


def test_a_control_plane_that_unlocked_itself_is_known_by_its_evidence(prepared: Road) -> None:
    """It had no ticket in this boot; it pushes by itself, and then its kubelet's certificate can be renewed."""
    renewed = "attested renew --now > /dev/null 2>&1 && echo renewed"

    def is_renewed(node: str) -> bool:
        return prepared.inside(node, "sh", "-c", renewed, check=False) != ""

    for node in CONTROL_PLANES:
        wait_for(partial(is_renewed, node), seconds=SECONDS)


def wait_for_unit(road: Road, machine: str, state: str) -> None:
    """Wait until systemd reports a state of the bootstrapper."""
    ask = ("systemctl", "is-active", UNIT)
    wait_for(lambda: road.inside(machine, *ask, check=False).strip() == state, seconds=SECONDS)


def active(road: Road, machine: str) -> list[str]:
    """Return what systemd says of the services of a control plane."""
    return road.inside(machine, "systemctl", "is-active", *SERVICES, check=False).split()


def identities(road: Road) -> str:
    """Return what a new cluster or a new join would change: the uids of all Nodes, and the cluster's CA."""
    uids = road.kubectl("get", "nodes", "--output=jsonpath={range .items[*]}{.metadata.name}={.metadata.uid} {end}")
    return uids + road.inside("cp-1", "sha256sum", "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/sa.pub")
