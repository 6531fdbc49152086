# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine goes from shim and GRUB of its distribution to the image of the fleet, and back from one that hangs.

The registers of the image are computed before a machine boots it, and read after it with tpm2-tools. The tests are in
the order of one machine's life and share it: a boot takes a minute and more where it is emulated. They run on a machine
with Debian 12, then on one with Debian 13.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.next_boot import (
    NextBoot,
    judge_next_boot,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.prediction import (
    predict,
    predict_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset, learn_preset
from ansible_collections.attested.kubernetes.tests.support.image_bed import (
    HELD,
    LINE,
    LOG,
    accepts,
    ask,
    build,
    entries,
    observed,
    program_of,
)
from ansible_collections.attested.kubernetes.tests.support.lab import obstacles
from ansible_collections.attested.kubernetes.tests.support.vm_bed import COMMAND_LINE, VM, LoneMachine, lone_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile

pytestmark = pytest.mark.slow

BUILT = "/var/tmp/fleet.efi"
HANGING = "/var/tmp/hanging.efi"

GRUB = """
export PATH=$PATH:/usr/sbin:/sbin
mkdir -p /boot/efi
echo '/dev/vda1 /boot/efi vfat umask=0077 0 2' >> /etc/fstab
mount /boot/efi
mountpoint -q /sys/firmware/efi/efivars || mount -t efivarfs efivarfs /sys/firmware/efi/efivars
cat > /etc/default/grub <<END
GRUB_TIMEOUT=0
GRUB_CMDLINE_LINUX="rw console=ttyS0 net.ifnames=0"
GRUB_CMDLINE_LINUX_DEFAULT=quiet
END
grub-install --target=x86_64-efi --efi-directory=/boot/efi --bootloader-id=debian 2>&1
update-grub 2>&1
"""


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneMachine]:
    """One machine of each Debian that was started once."""
    if found := obstacles(virtual_machines=True):
        pytest.skip(found)
    with lone_machine("attested-image-vm", tmp_path_factory.mktemp("vm"), request.param) as one:
        one.do("ensure", state_disk_mebibytes=256)
        yield one


@pytest.fixture(scope="module")
def base(machine: LoneMachine) -> MeasurementProfile:
    """What a machine that leads is learned as: it booted another image, with another command line."""
    boot = observed(machine)
    return learn_preset("base", Preset.AUTO, **boot)


@pytest.mark.usefixtures("took", "base")
def test_the_machine_boots_shim_and_grub_of_its_distribution(machine: LoneMachine, base: MeasurementProfile) -> None:
    """GRUB of Debian 12 starts the kernel around its EFI stub where Secure Boot is off: it has no event log then."""
    machine.inside(GRUB)
    machine.do("restart", state_disk_mebibytes=256)
    assert "BOOT_IMAGE=" in machine.inside("cat /proc/cmdline")
    read = {index: bytes.fromhex(value) for index, value in machine.registers().items()}
    assert read[8] != bytes(32)
    assert read[11] == bytes(32)
    assert read[4] != base.registers[4][0].digest
    found = machine.inside(f"test -e {LOG} || echo none").strip()
    assert found == {"bookworm": "none", "trixie": ""}[machine.suite]


@pytest.mark.usefixtures("took")
def test_equal_parts_make_equal_bytes(machine: LoneMachine) -> None:
    """Built by the distribution's objcopy; what check mode names, the run does, and a second run does nothing."""
    foreseen = build(machine, BUILT, LINE, check=True)
    first = build(machine, BUILT, LINE)
    again = build(machine, BUILT, LINE)
    assert (foreseen["changed"], first["changed"], again["changed"]) == (True, True, False), (foreseen, first, again)
    assert foreseen["sha256"] == first["sha256"] == again["sha256"]


@pytest.mark.usefixtures("took")
def test_an_image_whose_root_is_not_there_is_not_installed(machine: LoneMachine) -> None:
    build(machine, HANGING, "root=LABEL=elsewhere rw console=ttyS0")
    before = entries(machine)
    refused = ask(machine, state="installed", name="elsewhere", image=HANGING)
    assert refused.get("reason") == "BOOT_IMAGE_UNFIT", refused
    assert entries(machine) == before


@pytest.mark.usefixtures("took")
def test_the_image_is_measured_as_it_was_computed(machine: LoneMachine, base: MeasurementProfile) -> None:
    """Computed before its first boot; what is refused then is the boot of before, and the boot of GRUB."""
    grub = {index: bytes.fromhex(value) for index, value in machine.registers().items()}
    data = program_of(machine, BUILT)
    predicted = predict(read_image(data), secure_boot=False, reference=base.reference_events)
    ahead = predict_profile(base, "fleet", predicted, label="fleet")
    now = datetime.now(UTC)
    assert judge_next_boot(NextBoot(path=BUILT, image=read_image(data)), [ahead], now=now) == ""
    order = entries(machine)["BootOrder"]
    tried = ask(machine, state="installed", name="fleet", image=BUILT)
    assert (tried["changed"], tried["is_next"], tried["is_default"]) == (True, True, False), tried
    assert not ask(machine, state="installed", name="fleet", image=BUILT)["changed"]
    machine.do("restart", state_disk_mebibytes=256)

    boot = observed(machine)
    assert {pcr: boot["pcrs"][pcr] for pcr in HELD} == {pcr: ahead.registers[pcr][0].digest for pcr in HELD}
    assert accepts(ahead, boot) == ""
    assert accepts(base, boot) == "PCR_MISMATCH"
    assert accepts(ahead, {**boot, "pcrs": {**boot["pcrs"], **grub}}) == "PCR_MISMATCH"
    assert accepts(dataclasses.replace(ahead, retired=True), boot) != ""
    found = entries(machine)
    assert (found["BootCurrent"], found["BootOrder"], "BootNext" in found) == (tried["entry"], order, False)


@pytest.mark.usefixtures("took")
def test_the_image_that_runs_becomes_the_default(machine: LoneMachine) -> None:
    kept = ask(machine, state="default", name="fleet")
    assert (kept["changed"], kept["running"], kept["is_default"]) == (True, True, True), kept
    assert not ask(machine, state="default", name="fleet")["changed"]
    before = machine.registers()
    machine.do("restart", state_disk_mebibytes=256)
    assert entries(machine)["BootCurrent"] == kept["entry"]
    assert {pcr: machine.registers()[pcr] for pcr in HELD} == {pcr: before[pcr] for pcr in HELD}


@pytest.mark.usefixtures("took")
def test_an_image_that_does_not_come_up_leaves_the_default(machine: LoneMachine) -> None:
    """Its initrd cannot mount the root file system, gives up, and resets the machine."""
    build(machine, HANGING, f"{COMMAND_LINE} rootfstype=nothing panic=5")
    tried = ask(machine, state="installed", name="hanging", image=HANGING)
    assert tried["is_next"], tried
    before = entries(machine)
    machine.do("restart", state_disk_mebibytes=256)  # the first boot resets; the second one is waited for
    found = entries(machine)
    assert (found["BootCurrent"], found["BootOrder"]) == (before["BootCurrent"], before["BootOrder"])
    console = (machine.root / "machines" / VM / "console.log").read_text(errors="replace")
    assert r'"Linux hanging"' in console
    refused = ask(machine, state="default", name="hanging")
    assert refused.get("reason") == "BOOT_FELL_BACK", refused
