# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine makes the cluster, another one joins it, and both have their state on disks of their own.

Init, join, the plug of both pulled at once with one recovery for all, and a changed kernel command line, in the order
of one lab's life; no container is a node, so nothing answers while the machines are off. Each is looked at with
cryptsetup, findmnt, pgrep, tpm2-tools and kubectl. What each took is printed, and fails nothing.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.vm_bed import (
    CHANGED_COMMAND_LINE,
    DOOR,
    RARELY,
    SECONDS,
    STATE_DISK,
    HybridRoad,
    assert_locked_once,
    assert_on_its_disk,
    disk_condition,
    hybrid_road,
    row_of,
    run_a_pod,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_VM_FOUNDER_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab, with a cluster or before it; it is used and left."""

PLANE, WORKER = "vc-1", "vw-1"
MACHINES = (PLANE, WORKER)
LAB = {
    "lab_bootstrapper": True,
    "lab_control_planes": 0,
    "lab_workers": 0,
    "lab_vm_control_planes": 1,
    "lab_vm_workers": 1,
}
WORDS = ("-e", json.dumps(LAB))
PATIENCE = ("-e", f"attested_wait_seconds={SECONDS:.0f}")
RECOVERY_PATIENCE = ("-e", "attested_wait_seconds=600")
DIRECTORIES = ("/var/lib/etcd", "/etc/kubernetes", "/var/lib/kubelet", "/var/lib/attested/key-service")
"""What a control plane keeps on its disk."""

SERVICES = ("attested-key-service", "attested-join-service")
SECRET = ("secret", "kept")
WORD = "written-before-the-cut"
LOCKED = "/run/attested/locked"
TRIES = 4
TOO_SLOW = ("API_UNREACHABLE", "KUBECTL_FAILED", "KUBEADM_PHASE_FAILED")
"""Why an init may give up where everything is emulated; whatever else it says is a failure."""


@pytest.fixture(scope="module")
def road() -> Iterator[HybridRoad]:
    """Two virtual machines that were prepared and enrolled, and of which nobody has made anything."""
    lab = "attested-founder:127.90.0"
    roads = hybrid_road("lab", of=lab, instead=USED_LAB, words=WORDS, disks=MACHINES, plane=PLANE)
    with roads as one:
        yield one


@pytest.mark.usefixtures("took")
def test_init_makes_the_cluster_on_a_machine_whose_state_is_on_its_own_disk(road: HybridRoad) -> None:
    """Told over the wire: it formats its disk, locks itself, and everything that etcd and kubeadm write lies there."""
    make_the_cluster(road)
    road.joined(PLANE)
    assert_on_its_disk(road, PLANE, *DIRECTORIES)
    assert_locked_once(road, PLANE)


@pytest.mark.usefixtures("took")
def test_a_worker_joins_it_with_its_state_on_its_own_disk_and_runs_a_pod(road: HybridRoad) -> None:
    """Nobody ran anything on it."""
    road.joined(WORKER)
    assert_on_its_disk(road, WORKER)
    assert_locked_once(road, WORKER)
    assert run_a_pod(road, WORKER, "on-the-worker") == road.inside(WORKER, "uname", "--kernel-release")

    def is_good(machine: str) -> bool:
        return disk_condition(road, machine) == "False"

    for machine in MACHINES:
        wait_for(partial(is_good, machine), seconds=SECONDS, every=RARELY)


@pytest.mark.usefixtures("took")
def test_after_a_power_cut_of_all_machines_one_recovery_brings_the_cluster_back(road: HybridRoad) -> None:
    """Until then both disks are closed, nothing of the cluster runs, and nobody can give a ticket."""
    road.kubectl("delete", *SECRET, "--ignore-not-found")
    road.kubectl("create", "secret", "generic", "kept", f"--from-literal=word={WORD}")
    road.play("policy", *WORDS)  # the admin's site learns the ids of the disks, which a recovery needs
    assert {machine: assigned(road, machine) for machine in MACHINES} == {
        machine: road.inside(machine, "cryptsetup", "luksUUID", STATE_DISK).strip() for machine in MACHINES
    }
    before = {machine: (road.volume(machine), road.boot_id(machine)) for machine in MACHINES}
    for machine in MACHINES:
        road.put_marker(machine, WORD)

    for machine in MACHINES:
        road.power(machine, "-e", "power=cut")
    for machine in MACHINES:
        road.power(machine, "-e", "restart=false")
    for machine in MACHINES:
        wait_until_its_door_is_open(road, machine)
        assert_closed(road, machine)
    told = road.finish("recover", road.start("recover", *WORDS, *RECOVERY_PATIENCE)).output
    assert row_of(told, PLANE).startswith("recovered "), told[-6000:]
    # the control plane that came back may have been faster with its ticket, and then its door is closed
    assert row_of(told, WORKER).startswith(("recovered ", "another was first ", "does not answer ")), told[-6000:]

    for machine in MACHINES:
        assert road.joined(machine) != before[machine][1]
        assert road.volume(machine) == before[machine][0]
        assert road.marker(machine) == WORD
        assert_locked_once(road, machine)
    assert_on_its_disk(road, PLANE, *DIRECTORIES)
    wait_for(lambda: all(road.is_active(PLANE, service) for service in SERVICES), seconds=SECONDS, every=RARELY)
    wait_for(lambda: kept(road) == WORD, seconds=SECONDS, every=RARELY)


@pytest.mark.usefixtures("took")
def test_a_control_plane_with_a_changed_kernel_command_line_gets_no_key(road: HybridRoad) -> None:
    """Refused by the registers of the image. The old line does again, by the same command."""
    road.power(PLANE, "-e", json.dumps({"command_line": CHANGED_COMMAND_LINE, "restart": False}))
    assert road.inside(PLANE, "cat", "/proc/cmdline").strip() == CHANGED_COMMAND_LINE
    wait_until_its_door_is_open(road, PLANE)
    run = road.finish("recover", road.start("recover", "--limit", PLANE, *WORDS))
    assert run.returncode != 0
    assert "PCR_MISMATCH" in row_of(run.output, PLANE), run.output[-6000:]
    assert_closed(road, PLANE)

    road.power(PLANE, "-e", "restart=false")
    wait_until_its_door_is_open(road, PLANE)
    told = road.play("recover", "--limit", PLANE, *WORDS, *RECOVERY_PATIENCE).output
    assert row_of(told, PLANE).startswith("recovered "), told[-6000:]
    road.joined(PLANE)
    assert_locked_once(road, PLANE)
    assert road.marker(PLANE) == WORD
    wait_for(lambda: kept(road) == WORD, seconds=SECONDS, every=RARELY)


def make_the_cluster(road: HybridRoad) -> None:
    """Run `init` until it ends well: an emulated API server may be too slow for it, and the next run goes on."""
    words = (*WORDS, *PATIENCE)
    for _try in range(TRIES - 1):
        run = road.finish("init", road.start("init", *words))
        if run.returncode == 0:
            return
        assert any(code in run.output for code in TOO_SLOW), run.output[-6000:]
    road.play("init", *words)


def wait_until_its_door_is_open(road: HybridRoad, machine: str) -> None:
    """Wait until a locked machine lets an admin recover it."""
    wait_for(lambda: road.is_active(machine, DOOR), seconds=SECONDS, every=RARELY)


def assert_closed(road: HybridRoad, machine: str) -> None:
    """No volume is open, the machine has not locked itself, and nothing runs that would be of a cluster."""
    assert [road.volume(machine, directory) for directory in DIRECTORIES] == [{}] * len(DIRECTORIES)
    assert road.inside(machine, "find", LOCKED, check=False) == ""
    assert not road.is_active(machine, "kubelet")
    assert not any(road.is_active(machine, service) for service in SERVICES)
    assert road.inside(machine, "pgrep", "-f", "^(kube-|etcd )", check=False) == ""


def assigned(road: HybridRoad, machine: str) -> str:
    """Return which id of a disk the site says that the cluster assigned to a machine."""
    files = (road.site / "host_vars" / machine).glob("*.yml")
    found = [yaml.safe_load(file.read_text()).get("attested_disk_id", "") for file in files]
    return "".join(map(str, found))


def kept(road: HybridRoad) -> str:
    """Return what the Secret says that was written before the cut; nothing while the API server starts once more.

    An emulated one may be too slow for its own probes just after a boot.
    """
    kubectl = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", *SECRET)
    return road.inside(PLANE, *kubectl, "--output=go-template={{.data.word | base64decode}}", check=False)
