# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a virtual machine of the lab has that no container has, looked at with other tools than ours.

The tests are in the order of one machine's life and share it: a boot takes most of a minute where it is emulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.lab import obstacles
from ansible_collections.attested.kubernetes.tests.support.vm_bed import (
    CHANGED_COMMAND_LINE,
    STATE_DISK,
    LoneMachine,
    lives,
    lone_machine,
    registers,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

FIRMWARE_LOG = "/sys/kernel/security/tpm0/binary_bios_measurements"
OF_THE_FIRMWARE = range(8)
IMAGE = {4, 9, 11}
"""The program that the firmware started, and what was in it."""
IMA = 10

FORMAT = f"""
modprobe -a dm-crypt dm-integrity
umask 077; head -c 32 /dev/urandom > /var/tmp/key
cryptsetup luksFormat -q --type luks2 --key-file /var/tmp/key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
  --cipher aes-xts-plain64 --integrity hmac-sha256 --sector-size 4096 {STATE_DISK}
cryptsetup open --key-file /var/tmp/key {STATE_DISK} state
mkfs.ext4 -q /dev/mapper/state
mount /dev/mapper/state /mnt
echo kept > /mnt/file
sync
"""
OPEN = f"""
cryptsetup open --key-file /var/tmp/key {STATE_DISK} state
mount /dev/mapper/state /mnt
cat /mnt/file
"""
# what dd wrote while the disk was closed is no sector that its tag vouches for
FLIP = f"""
cryptsetup open --key-file /var/tmp/key {STATE_DISK} state
dd if=/dev/mapper/state of=/dev/null bs=4096 count=1 skip=20000 iflag=direct status=none
cryptsetup close state
dd if=/dev/zero of={STATE_DISK} bs=1M count=64 seek=96 oflag=direct status=none
cryptsetup open --key-file /var/tmp/key {STATE_DISK} state
dd if=/dev/mapper/state of=/dev/null bs=4096 status=none || echo refused
cryptsetup close state
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneMachine]:
    """One machine that was started once, with a small state disk."""
    if found := obstacles(virtual_machines=True):
        pytest.skip(found)
    with lone_machine("attested-lone-vm", tmp_path_factory.mktemp("vm")) as one:
        assert one.do("ensure", state_disk_mebibytes=256)["changed"] is True
        yield one


@pytest.fixture(scope="module")
def first(machine: LoneMachine) -> dict[int, str]:
    """The registers of its first boot."""
    return machine.registers()


def test_what_runs_as_asked_is_left_alone(machine: LoneMachine) -> None:
    """A second run changes nothing, and the machine does not even notice."""
    boot, running = machine.boot_id(), machine.processes()
    assert machine.do("ensure", state_disk_mebibytes=256)["changed"] is False
    assert (machine.boot_id(), machine.processes()) == (boot, running)


def test_firmware_and_kernel_measured_what_their_log_says(machine: LoneMachine, first: dict[int, str]) -> None:
    """The log replayed by tpm2_eventlog is what tpm2_pcrread reads, and nothing that counts is empty."""
    replayed = registers(machine.inside(f"tpm2_eventlog {FIRMWARE_LOG} 2>/dev/null"))
    assert {*OF_THE_FIRMWARE, 9} <= set(replayed)
    assert all(first[index] == replayed[index] for index in (*OF_THE_FIRMWARE, 9))
    assert "0" * 64 not in {first[index] for index in (*OF_THE_FIRMWARE, *IMAGE)}
    assert first[15] == "0" * 64  # the lock's: systemd of this suite puts nothing into it


def test_the_endorsement_key_has_a_certificate_of_the_labs_authority(machine: LoneMachine) -> None:
    """By openssl, with the authority that the site would trust."""
    machine.inside("tpm2_nvread -T device:/dev/tpmrm0 -C o 0x1c00002 > /var/tmp/ek.der")
    authority = machine.root / "authorities" / "lab" / "certificates.pem"
    check = f"cat > /var/tmp/ca.pem <<'END'\n{authority.read_text()}END\n"
    check += "openssl x509 -inform DER -in /var/tmp/ek.der -out /var/tmp/ek.pem\n"
    check += "openssl verify -CAfile /var/tmp/ca.pem /var/tmp/ek.pem"
    assert "ek.pem: OK" in machine.inside(check)


def test_a_disk_with_integrity_is_made_and_opens_again_after_a_reboot(
    machine: LoneMachine, first: dict[int, str]
) -> None:
    """The TPM is reset by it, and the registers are what they were."""
    before = machine.boot_id()
    machine.inside(FORMAT)
    machine.inside("tpm2_pcrextend -T device:/dev/tpmrm0 15:sha256=" + "11" * 32)
    assert machine.do("restart", state_disk_mebibytes=256)["changed"] is True
    assert machine.boot_id() != before
    assert machine.registers() == first
    assert machine.inside(OPEN).strip() == "kept"


def test_a_machine_whose_power_is_cut_has_what_it_wrote(machine: LoneMachine, first: dict[int, str]) -> None:
    """Cut while the disk is open; nothing of it runs on, and the next start finds the disk."""
    running = machine.processes()
    machine.inside("echo cut > /mnt/file && sync")
    machine.do("cut", state_disk_mebibytes=256)
    assert not lives(running[0])
    wait_for(lambda: not lives(running[1]))  # the TPM ends by itself
    machine.do("ensure", state_disk_mebibytes=256)
    assert machine.registers() == first
    assert machine.inside(OPEN).strip() == "cut"
    machine.inside("umount /mnt && cryptsetup close state")


def test_sectors_that_were_changed_are_refused(machine: LoneMachine) -> None:
    """dm-integrity answers with an error, not with data."""
    assert machine.inside(FLIP).strip() == "refused"


def test_a_changed_command_line_is_measured_and_the_old_one_is_again(
    machine: LoneMachine, first: dict[int, str]
) -> None:
    """Only the registers of the image differ, and IMA's, which sums up the others."""
    machine.do("ensure", state_disk_mebibytes=256, command_line=CHANGED_COMMAND_LINE)
    changed = machine.registers()
    assert machine.inside("cat /proc/cmdline").strip() == CHANGED_COMMAND_LINE
    assert {index for index, value in changed.items() if value != first[index]} == IMAGE | {IMA}
    machine.do("ensure", state_disk_mebibytes=256)
    assert machine.registers() == first


def test_nothing_of_a_machine_stays(machine: LoneMachine) -> None:
    """Its processes have ended and its directory is gone."""
    running = machine.processes()
    assert machine.do("remove")["machines"] == ["vw-1"]
    assert not any(map(lives, running))
    assert not (machine.root / "machines" / "vw-1").exists()
