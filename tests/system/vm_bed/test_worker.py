# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine becomes a worker of a cluster whose control plane is a container, with its state on its own disk.

Join, reboot, power cut with recovery, a changed kernel command line, and another master secret with a kill in each
phase, in the order of one lab's life; each is looked at with cryptsetup, findmnt, tpm2-tools and kubectl. What each
took is printed, and fails nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import import_ring
from ansible_collections.attested.kubernetes.tests.support.cut_run import cut_run, phases_left
from ansible_collections.attested.kubernetes.tests.support.vm_bed import (
    CHANGED_COMMAND_LINE,
    DOOR,
    KUBELET,
    RARELY,
    SECONDS,
    STATE_DISK,
    VM,
    HybridRoad,
    assert_locked_once,
    assert_on_its_disk,
    disk_condition,
    hybrid_road,
    run_a_pod,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_VM_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab whose worker has joined; it is used and left."""

WORDS = ("-e", '{"lab_bootstrapper": true, "lab_workers": 0, "lab_vm_workers": 1}')
HEADER_BEFORE = f"{KUBELET}/header.before"
LOCKED = "/run/attested/locked"
ROTATION = "rotate_master_secret"
ROTATED_BY_SITE, ROTATED_BY_PLANE = "Record the versions in the site", "send it the versions"
SECOND_SLOT = f"until cryptsetup luksDump {STATE_DISK} | grep -q '^  1: luks2'; do :; done"


@pytest.fixture(scope="module")
def road() -> Iterator[HybridRoad]:
    """A cluster of one control plane, and a virtual machine that was prepared and that nobody runs anything on."""
    made = ("lab", "init")
    with hybrid_road(*made, of="attested-vms:127.86.0", instead=USED_LAB, words=WORDS, disks=(VM,)) as one:
        yield one


@pytest.mark.usefixtures("took")
def test_it_joins_with_its_state_on_its_own_disk_and_runs_a_pod(road: HybridRoad) -> None:
    """Booted, asked, got its ticket, formatted its disk, locked itself, joined: nobody ran anything on it."""
    road.joined(VM)
    assert_on_its_disk(road, VM)
    assert_locked_once(road, VM)
    kernel = road.inside(VM, "uname", "--kernel-release")
    assert run_a_pod(road, VM, "on-the-vm") == kernel != road.inside("cp-1", "uname", "--kernel-release")
    wait_for(lambda: disk_condition(road, VM) == "False", seconds=SECONDS)
    road.play("policy", *WORDS)  # the admin's site learns the id of its disk, which a recovery needs
    road.put_marker(VM, "first-boot")


@pytest.mark.usefixtures("took")
def test_a_reboot_brings_it_back_by_a_ticket(road: HybridRoad) -> None:
    """The TPM was reset and the disk was locked; nothing is formatted anew."""
    before = road.volume(VM)
    road.reboot(VM)
    road.joined(VM)
    assert_on_its_disk(road, VM)
    assert_locked_once(road, VM)
    assert road.volume(VM) == before
    assert road.marker(VM) == "first-boot"
    road.put_marker(VM, "second-boot")


@pytest.mark.usefixtures("took")
def test_after_a_power_cut_an_admin_recovers_it_where_no_cluster_answers(road: HybridRoad) -> None:
    """The control plane is off meanwhile; before the recovery the disk is closed, after it the volume is the same."""
    road.power(VM, "-e", "power=cut")
    road.inside("cp-1", "systemctl", "stop", "attested-join-service", "attested-key-service")
    road.power(VM, "-e", "restart=false")
    wait_for(lambda: road.is_active(VM, DOOR), seconds=SECONDS, every=RARELY)
    assert road.volume(VM) == {}
    said = road.play("recover", "--limit", VM).output
    assert VM in said
    wait_for(lambda: road.volume(VM) != {}, seconds=SECONDS, every=RARELY)
    road.inside("cp-1", "systemctl", "start", "attested-key-service", "attested-join-service")
    road.joined(VM)
    assert_locked_once(road, VM)
    assert road.marker(VM) == "second-boot"


@pytest.mark.usefixtures("took")
def test_a_changed_kernel_command_line_gets_no_key(road: HybridRoad) -> None:
    """Refused by the registers of the image: neither ticket nor recovery opens the disk. The old line does again."""
    road.power(VM, "-e", json.dumps({"command_line": CHANGED_COMMAND_LINE, "restart": False}))
    assert road.inside(VM, "cat", "/proc/cmdline").strip() == CHANGED_COMMAND_LINE
    # the machine itself hears the coarse text alone
    wait_for(lambda: "PCR_MISMATCH" in journal_of_the_service(road), seconds=SECONDS)
    run = road.finish("recover", road.start("recover", "--limit", VM))
    assert run.returncode != 0
    assert road.volume(VM) == {}
    assert road.inside(VM, "find", LOCKED, check=False) == ""
    assert not road.is_active(VM, "kubelet")
    road.power(VM, "-e", "restart=false")
    road.joined(VM)
    assert road.marker(VM) == "second-boot"


def journal_of_the_service(road: HybridRoad) -> str:
    """Return what the key service decided lately."""
    return road.inside("cp-1", "journalctl", "--unit=attested-key-service", "--since=-30min", "--output=cat")


def keys_by_version(road: HybridRoad) -> dict[str, bytes]:
    """Return the key of the worker's disk under each version that the site has, as an admin can derive them."""
    program = str(Path(sys.executable).parent / "ansible-vault")
    argv = (program, "view", ".secrets/master-secret.json")
    ring = import_ring(subprocess.run(argv, cwd=road.site, capture_output=True, check=True).stdout)
    uuid = road.inside(VM, "cryptsetup", "luksUUID", STATE_DISK).strip()
    return {one.name: one.key.reveal() for one in ring.disk_keys(DiskId(uuid))}


def opens(road: HybridRoad, key: bytes, *header: str) -> bool:
    """Whether cryptsetup opens a slot of the disk with a key, by its own header or by a copy."""
    argv = ("cryptsetup", "open", "--test-passphrase", "--key-file=-", *header, STATE_DISK)
    return road.inside(VM, "sh", "-c", f"{' '.join(argv)} 2>/dev/null && echo yes", given=key, check=False) == "yes\n"


def pull_the_plug(road: HybridRoad) -> None:
    """Kill the machine as soon as its header has a second slot: it is between two keys."""
    road.inside(VM, "sh", "-c", SECOND_SLOT)
    os.kill(int((road.lab.directory / "machines" / VM / "vm.pid").read_text()), signal.SIGKILL)


@pytest.mark.usefixtures("took")
def test_another_master_secret_with_a_kill_in_each_phase_and_a_power_cut_between_two_keys(road: HybridRoad) -> None:
    """The old secret opens no slot of the header, only the copy of before; the data is what it was."""
    road.inside(VM, "sh", "-c", f"head -c 16M /dev/urandom > {KUBELET}/data && sync {KUBELET}/data")
    road.inside(VM, "cryptsetup", "luksHeaderBackup", STATE_DISK, f"--header-backup-file={HEADER_BEFORE}")
    digest = road.inside(VM, "sha256sum", f"{KUBELET}/data")
    ((old, old_key),) = keys_by_version(road).items()
    words = (*WORDS, "-e", f"confirm={old}")

    cut_run(road, ROTATION, *words, after=ROTATED_BY_SITE)
    assert phases_left(road, ROTATION, *words) == ["share", "lead", "rekey", "retire", "forget"]
    cut_run(road, ROTATION, *words, after=ROTATED_BY_PLANE)
    assert phases_left(road, ROTATION, *words) == ["lead", "rekey", "retire", "forget"]
    cut_run(road, ROTATION, *words, after=ROTATED_BY_PLANE)
    assert phases_left(road, ROTATION, *words) == ["rekey", "retire", "forget"]
    new_key = next(key for name, key in keys_by_version(road).items() if name != old)

    plug = threading.Thread(target=pull_the_plug, args=(road,))
    plug.start()
    assert road.finish(ROTATION, road.start(ROTATION, *words)).returncode != 0
    plug.join()
    road.power(VM, "-e", "restart=false")
    road.joined(VM)
    assert phases_left(road, ROTATION, *words) == ["rekey", "retire", "forget"]

    cut_run(road, ROTATION, *words, after=ROTATED_BY_PLANE)
    assert phases_left(road, ROTATION, *words) == ["forget"]
    cut_run(road, ROTATION, *words, after=ROTATED_BY_SITE)
    assert phases_left(road, ROTATION, *words) == []
    assert set(road.play(ROTATION, *words).changes().values()) == {0}

    assert [opens(road, key) for key in (old_key, new_key)] == [False, True]
    assert [opens(road, key, f"--header={HEADER_BEFORE}") for key in (old_key, new_key)] == [True, False]
    assert road.inside(VM, "sha256sum", f"{KUBELET}/data") == digest
    road.reboot(VM)
    road.joined(VM)
    assert road.inside(VM, "sha256sum", f"{KUBELET}/data") == digest
