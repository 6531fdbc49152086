# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that become nodes by their boot unit: prepared, then one init over the wire, and nobody runs anything else.

In a lab of its own, beside that of `tests/e2e`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.boundaries import commit
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch
from ansible_collections.attested.kubernetes.tests.support.joining import assert_a_clean_node, bring_before
from ansible_collections.attested.kubernetes.tests.support.lab import Lab, obstacles
from ansible_collections.attested.kubernetes.tests.support.road import Road, assert_one_lock_event
from ansible_collections.attested.kubernetes.tests.support.striking import (
    put_faults_into,
    slice_of_the_matrix,
    suffer,
    tell,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "attested-boot"
NODES = ("cp-1", "w-1")
UNIT = "attested-bootstrapper.service"
WORDS = ("-e", '{"lab_bootstrapper": true, "lab_workers": 1}')


@pytest.fixture(scope="module")
def prepared() -> Iterator[Road]:
    """Two machines that were prepared and enrolled, and of which nobody has made anything."""
    if found := obstacles():
        pytest.skip(found)
    lab = Lab(name=NAME, directory=Path.home() / ".local" / "state" / NAME, loopback="127.64.0")
    with ProcessWatch() as watch:
        road = Road(lab=lab, watch=watch, began=time.time())
        try:
            road.play("lab_machines", *WORDS, where=Path.home())
            road.play("lab", *WORDS)
            yield road
        finally:
            lab.play("lab_down")


def test_a_prepared_machine_waits_and_says_for_what(prepared: Road) -> None:
    """Before anybody has made a cluster."""
    assert state_of(prepared, "cp-1") == "active"
    assert "race" in prepared.inside("cp-1", "journalctl", "--unit", UNIT).lower()
    wait_for(lambda: "PEER_UNREACHABLE" in status(prepared, "w-1"))


def test_one_init_over_the_wire_makes_the_cluster(prepared: Road) -> None:
    """The control plane proves itself to the admin on port 9000 and makes the cluster by itself."""
    run = prepared.play("init")
    assert "attested.kubernetes.init" in run.output
    assert_one_lock_event(prepared, "cp-1")
    assert prepared.inside("cp-1", "cat", "/run/attested/claim.json").count('"init"') == 1


def test_the_worker_joins_by_itself(prepared: Road) -> None:
    """It asked all the time; nobody ran anything on it."""
    wait_for(lambda: "w-1" in prepared.kubectl("get", "nodes", "--output=name"))
    wait_for(lambda: state_of(prepared, "w-1") == "inactive")
    assert_one_lock_event(prepared, "w-1")


def test_the_bootstrappers_have_ended_and_their_door_is_closed(prepared: Road) -> None:
    """Port 9000 is there only as long as it is needed."""
    for node in NODES:
        wait_for(lambda node=node: state_of(prepared, node) == "inactive")
    wait_for(lambda: ":9000" not in prepared.inside("cp-1", "ss", "-ltn"))
    assert not prepared.inside("cp-1", "sh", "-c", "ls /run/attested/bootstrapper.sock 2>/dev/null || true")


def test_the_nodes_are_ready_and_the_playbooks_find_nothing_to_do(prepared: Road) -> None:
    """Nobody connected their pods either; the road over ssh goes on where the machines stand.

    The first run writes into the site which disk the cluster assigned while nobody looked.
    """
    for node in NODES:
        prepared.wait_until_ready(node, boot_id=prepared.boot_id(node))
    prepared.play("node")
    assert "attested_disk_id: " in (prepared.site / "host_vars/w-1/identity.yml").read_text()
    for playbook in ("init", "node"):
        changes = prepared.play(playbook).changes()
        assert set(changes.values()) == {0}, changes
    prepared.play("verify")


def test_after_a_reboot_of_all_everything_comes_back_alone(prepared: Road) -> None:
    """TPMs reset, locks gone: the founder opens its keys, the worker fetches its ticket again, nobody runs anything."""
    boots = {node: prepared.reboot(node) for node in NODES}
    for node in NODES:
        prepared.wait_until_ready(node, boot_id=boots[node])
        assert_one_lock_event(prepared, node)
        wait_for(lambda node=node: state_of(prepared, node) == "inactive")
    assert "REJOIN" in prepared.inside("w-1", "journalctl", "--boot", "--unit", UNIT)
    assert "KUBELET" in prepared.inside("cp-1", "journalctl", "--boot", "--unit", UNIT)


def test_a_killed_bootstrapper_goes_on(prepared: Road) -> None:
    """Kill -9 while it waits for the control plane, which is away; then it joins."""
    prepared.inside("cp-1", "systemctl", "stop", "attested-join-service")
    boot = prepared.reboot("w-1")
    wait_for(lambda: state_of(prepared, "w-1") == "active")
    prepared.inside("w-1", "systemctl", "kill", "--signal=KILL", UNIT)
    prepared.inside("cp-1", "systemctl", "start", "attested-join-service")
    prepared.wait_until_ready("w-1", boot_id=boot)
    assert_one_lock_event(prepared, "w-1")


def test_a_worker_joins_through_three_faults(prepared: Road, counted: Callable[[str], None]) -> None:
    """A slice of the matrix (tests/system/matrix): each fault once, in one join, before steps that the commit draws."""
    orders = slice_of_the_matrix(commit())
    counted(f"slice of the matrix: {', '.join(map(str, orders))}")
    put_faults_into(prepared, "w-1")
    bring_before(prepared, "w-1", orders[0].point)
    tell(prepared, "w-1", *orders)
    prepared.lab.ssh("w-1", "sudo systemctl reboot")
    suffer(prepared, "w-1", *orders)
    assert_a_clean_node(prepared, "w-1")


def state_of(road: Road, machine: str) -> str:
    """Return what systemd says of the bootstrapper."""
    return road.inside(machine, "systemctl", "is-active", UNIT, check=False).strip()


def status(road: Road, machine: str) -> str:
    """Return what a machine says of itself."""
    return road.inside(machine, "attested", "status", check=False)
