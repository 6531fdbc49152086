# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a lab, made for real beside any other lab: they boot, attest what was recorded, and leave no trace.

The tests are in the order of a lab's life and share one lab; the last one removes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.lab import (
    ROLE,
    Lab,
    host_state,
    obstacles,
    recorded_registers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

NAME = "attested-lab-test"
EK_CERTIFICATE = "0x1c00002"

GUESTS = """
- name: Guests of the lab
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: A machine with a changed kernel command line, and one with a foreign TPM
      ansible.builtin.include_role:
        name: attested.kubernetes.lab
        tasks_from: machine
      vars:
        lab_machines_machine_name: "{{ item.name }}"
        lab_machines_machine_number: "{{ item.number }}"
        lab_machines_machine_boot: "{{ item.boot }}"
        lab_machines_machine_authority: "{{ item.authority }}"
      loop:
        - {name: changed, number: 31, boot: deb13-cmdline, authority: lab}
        - {name: stranger, number: 32, boot: deb13-base, authority: elsewhere}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if found := obstacles():
        pytest.skip(found)
    lab = Lab(
        name=NAME,
        directory=tmp_path_factory.mktemp("lab") / "lab",
        loopback="127.99.0",
        variables={"lab_workers": 1},
    )
    yield lab
    removed = lab.play("lab_down")
    assert removed.returncode == 0, removed.stdout + removed.stderr


@pytest.fixture(scope="module")
def before(lab: Lab) -> dict[str, object]:
    return host_state(lab)


def assert_as_before(lab: Lab, before: dict[str, object]) -> None:
    after = host_state(lab)
    assert {kind: after[kind] for kind in after} == before


def test_everything_missing_is_listed_at_once() -> None:
    """A host without any of the packages is told all of them and the one command."""
    look = [sys.executable, "-B", str(ROLE / "files" / "host" / "check.py"), "--path", "/nonexistent"]
    said = subprocess.run(look, capture_output=True, text=True, check=True).stdout
    for package in (
        "LAB_PREREQUISITES_MISSING",
        "podman",
        "mmdebstrap",
        "swtpm-tools",
        "apt-get install",
        "lab_install_packages=true",
    ):
        assert package in said


@pytest.mark.parametrize("number", [0, 4])
def test_no_and_a_fourth_control_plane_are_refused_with_a_reason(
    lab: Lab, before: dict[str, object], number: int
) -> None:
    done = lab.play("lab_machines", lab_control_planes=number)
    assert done.returncode != 0
    assert "OPTION_INVALID: expected 1 to" in done.stdout
    assert "1 to 3 control planes" in done.stdout
    assert_as_before(lab, before)


def test_a_lab_that_failed_halfway_is_removed_completely(lab: Lab, before: dict[str, object]) -> None:
    done = lab.play("lab_machines", lab_mounts={"/srv/none": "/nonexistent"})
    assert done.returncode != 0
    assert "/nonexistent" in done.stdout
    assert (lab.directory / "record.json").exists()
    down = lab.play("lab_down")
    assert down.returncode == 0, down.stdout + down.stderr
    assert_as_before(lab, before)


def test_machines_come_up_and_a_second_run_changes_nothing(lab: Lab, before: dict[str, object]) -> None:
    began = time.monotonic()
    first = lab.play("lab_machines")
    print(f"machines up: {time.monotonic() - began:.1f} s")
    assert first.returncode == 0, first.stdout + first.stderr
    again = lab.play("lab_machines")
    assert "changed=0" in again.stdout, again.stdout


def test_lab_goes_on_in_its_own_site_only(lab: Lab, tmp_path: Path) -> None:
    """In the site of a real cluster the playbook stops before it would prepare that cluster's machines."""
    other = tmp_path / "hosts.yml"
    other.write_text("nodes: {hosts: {metal-1: {ansible_host: 192.0.2.1}}}")
    done = lab.play("lab", inventory=other)
    assert done.returncode != 0
    assert "LAB_SITE_EXPECTED" in done.stdout
    assert f"cd {lab.directory}/site" in done.stdout
    assert "metal-1" not in done.stdout


@pytest.mark.parametrize("machine", ["cp-1", "w-1"])
def test_ssh_reaches_a_machine_by_its_pinned_key(lab: Lab, machine: str) -> None:
    seen = lab.ssh(machine, "hostname; sudo id -u; systemctl is-system-running; systemctl is-active containerd")
    assert seen.stdout.split() == [machine, "0", "running", "active"], seen.stderr


def test_a_machine_with_another_host_key_is_not_talked_to(lab: Lab) -> None:
    """The pin of w-1 does not open cp-1."""
    config = str(lab.directory / "ssh" / "config")
    other = ["-o", f"HostName={lab.loopback}.11", "-o", "HostKeyAlias=w-1"]
    seen = subprocess.run(["ssh", "-F", config, *other, "w-1", "true"], capture_output=True, text=True, check=False)
    assert seen.returncode != 0
    assert "Host key verification failed" in seen.stderr


def test_the_host_gets_no_link_address_or_route(lab: Lab, before: dict[str, object]) -> None:
    now = host_state(lab)
    for kind in ("links", "addresses", "routes", "rules"):
        assert now[kind] == before[kind], kind


@pytest.mark.parametrize("machine", ["cp-1", "w-1"])
def test_registers_are_those_of_the_recorded_boot(lab: Lab, machine: str) -> None:
    assert lab.registers(machine) == recorded_registers("deb13-base")


def test_a_machine_cannot_change_settings_of_the_host(lab: Lab) -> None:
    seen = lab.ssh(
        "w-1", "sudo sysctl -w vm.overcommit_memory=1 kernel.panic=77 fs.nr_open=2000000 && sudo sysctl -n kernel.panic"
    )
    assert seen.stdout.split()[-1] == "77"
    assert Path("/proc/sys/kernel/panic").read_text().strip() != "77"


def test_a_reboot_resets_the_tpm_and_replays(lab: Lab) -> None:
    boot_id = lab.ssh("w-1", "cat /proc/sys/kernel/random/boot_id").stdout.strip()
    lab.tpm("w-1", "tpm2_pcrextend", "15:sha256=" + "ab" * 32)
    assert lab.registers("w-1")[15] != recorded_registers("deb13-base")[15]
    lab.ssh("w-1", "touch /home/admin/kept; sudo touch /run/forgotten; sudo systemctl reboot")
    lab.wait_for_boot("w-1", other_than=boot_id)
    assert lab.registers("w-1") == recorded_registers("deb13-base")
    assert lab.ssh("w-1", "ls -d /home/admin/kept /run/forgotten").stdout.split() == ["/home/admin/kept"]


def test_a_new_mainboard_brings_another_tpm_and_firmware_to_the_same_disk(lab: Lab) -> None:
    """The machine is found at once: its neighbours know its hardware address still."""
    certificate = lab.tpm("w-1", "tpm2_nvread", EK_CERTIFICATE)
    lab.ssh("w-1", "touch /home/admin/on-the-disk")
    done = lab.play("lab_machine", machine="w-1", boot="deb13-firmware", mainboard="new")
    assert done.returncode == 0, done.stdout + done.stderr
    assert lab.ssh("w-1", "ls /home/admin/on-the-disk").stdout.strip() == "/home/admin/on-the-disk"
    assert lab.tpm("w-1", "tpm2_nvread", EK_CERTIFICATE) != certificate
    assert lab.registers("w-1") == recorded_registers("deb13-firmware")


def test_a_boot_that_is_put_in_counts_from_the_next_start_on(lab: Lab) -> None:
    done = lab.play("lab_machine", machine="w-1", boot="deb13-base", restart=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lab.registers("w-1") == recorded_registers("deb13-firmware")
    boot_id = lab.ssh("w-1", "cat /proc/sys/kernel/random/boot_id; sudo systemctl reboot").stdout.strip()
    lab.wait_for_boot("w-1", other_than=boot_id)
    assert lab.registers("w-1") == recorded_registers("deb13-base")


def test_guests_boot_what_they_are_told_with_the_tpm_they_are_given(lab: Lab, tmp_path: Path) -> None:
    play = tmp_path / "guests.yml"
    play.write_text(GUESTS)
    done = lab.play(play)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lab.registers("changed") == recorded_registers("deb13-cmdline")
    assert lab.registers("stranger") == recorded_registers("deb13-base")
    assert lab.ssh("changed", "hostname").stdout.strip() == "changed"
    certified = {name: ek_is_certified(lab, name, tmp_path) for name in ("cp-1", "w-1", "changed", "stranger")}
    assert certified == {"cp-1": True, "w-1": True, "changed": True, "stranger": False}


def ek_is_certified(lab: Lab, machine: str, scratch: Path) -> bool:
    """Let openssl judge the certificate in the TPM against the lab's own authority."""
    certificate = scratch / f"{machine}.der"
    certificate.write_bytes(lab.tpm(machine, "tpm2_nvread", EK_CERTIFICATE))
    pem = scratch / f"{machine}.pem"
    subprocess.run(["openssl", "x509", "-inform", "DER", "-in", certificate, "-out", pem], check=True)
    trust = lab.directory / "authorities" / "lab" / "certificates.pem"
    verified = subprocess.run(["openssl", "verify", "-CAfile", trust, pem], capture_output=True, check=False)
    return verified.returncode == 0


def test_a_dead_tpm_is_started_again_with_its_machine(lab: Lab) -> None:
    """After a crash the next run of the playbook repairs, and repairs only that machine."""
    boots = {name: lab.ssh(name, "cat /proc/sys/kernel/random/boot_id").stdout for name in ("cp-1", "w-1")}
    os.kill(int((lab.directory / "machines" / "w-1" / "tpm.pid").read_text()), 9)
    done = lab.play("lab_machines")
    assert done.returncode == 0, done.stdout + done.stderr
    assert lab.registers("w-1") == recorded_registers("deb13-base")
    assert lab.ssh("cp-1", "cat /proc/sys/kernel/random/boot_id").stdout == boots["cp-1"]
    assert lab.ssh("w-1", "cat /proc/sys/kernel/random/boot_id").stdout != boots["w-1"]


def test_lab_down_leaves_the_host_as_it_was(lab: Lab, before: dict[str, object]) -> None:
    began = time.monotonic()
    done = lab.play("lab_down")
    print(f"lab down: {time.monotonic() - began:.1f} s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=1" in done.stdout
    assert_as_before(lab, before)
    assert "changed=0" in lab.play("lab_down").stdout
