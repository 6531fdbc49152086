# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with Secure Boot on goes from one signed image to the next, whose registers are computed before its boot.

Keys of the site and of Microsoft are enrolled in the setup mode of real firmware. The first image is learned: PCR 7
says who signed it. The second one has another initrd and command line. In the order of one machine's life.
"""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
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
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_image import run_signed
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset, learn_preset
from ansible_collections.attested.kubernetes.tests.support.image_bed import (
    LINE,
    accepts,
    ask,
    build,
    observed,
    program_of,
    signed_lists,
)
from ansible_collections.attested.kubernetes.tests.support.lab import obstacles
from ansible_collections.attested.kubernetes.tests.support.vm_bed import LoneMachine, lone_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile

pytestmark = pytest.mark.slow

HELD = (4, 7, 9, 11)
"""Without PCR 0: firmware of this kind measures a volume that depends on its variables."""

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MOUNTED = """
mkdir -p /boot/efi
mountpoint -q /boot/efi || mount /dev/vda1 /boot/efi
mountpoint -q /sys/firmware/efi/efivars || mount -t efivarfs efivarfs /sys/firmware/efi/efivars
"""
OTHER_INITRD = "cd /etc && { cat /boot/initrd.img-*; echo hostname | cpio --quiet -o -H newc; } > /var/tmp/initrd"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneMachine]:
    """One machine whose firmware is in setup mode."""
    if found := obstacles(virtual_machines=True):
        pytest.skip(found)
    if missing := [name for name in ("cert-to-efi-sig-list", "efi-updatevar", "sbsign") if not shutil.which(name)]:
        pytest.skip(f"needs {' and '.join(missing)} (packages efitools and sbsigntool)")
    with lone_machine("attested-signed-vm", tmp_path_factory.mktemp("vm")) as one:
        one.do("ensure", state_disk_mebibytes=256, secure_boot=True)
        one.inside(MOUNTED)
        yield one


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The site's key for Secure Boot, and its certificate."""
    folder = tmp_path_factory.mktemp("keys")
    key, certificate = folder / "key.pem", folder / "secure-boot.pem"
    words = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=site")
    subprocess.run((*words, "-keyout", str(key), "-out", str(certificate)), check=True, capture_output=True)
    return key, certificate


def install(machine: LoneMachine, pair: tuple[Path, Path], name: str, line: str, initrd: str = "") -> bytes:
    """Build an image on the machine, sign it here, and make it the machine's next boot; return the image."""
    build(machine, f"/var/tmp/{name}.unsigned.efi", line, initrd=initrd)
    folder = pair[0].parent
    (folder / f"{name}.unsigned.efi").write_bytes(program_of(machine, f"/var/tmp/{name}.unsigned.efi"))
    words = {"image": str(folder / f"{name}.unsigned.efi"), "path": str(folder / f"{name}.efi")}
    run_signed({**words, "key": str(pair[0]), "certificate": str(pair[1])}, check_mode=False)
    machine.copy(folder / f"{name}.efi")
    tried = ask(machine, state="installed", name=name, image=f"/var/tmp/{name}.efi")
    assert tried.get("is_next"), tried
    return (folder / f"{name}.efi").read_bytes()


@pytest.fixture(scope="module")
def learned(machine: LoneMachine, pair: tuple[Path, Path]) -> MeasurementProfile:
    """What the machine is learned as with Secure Boot on and the first image, which it keeps."""
    lists = signed_lists(pair[0].parent, *pair)
    machine.copy(Path(shutil.which("efi-updatevar") or ""), *lists)
    machine.inside("\n".join(f"/var/tmp/efi-updatevar -f /var/tmp/{one.name} {one.stem}" for one in lists))
    install(machine, pair, "first", LINE)
    machine.do("restart", state_disk_mebibytes=256, secure_boot=True)
    machine.inside(MOUNTED)
    kept = ask(machine, state="default", name="first")
    assert kept.get("is_default"), kept
    return learn_preset("first", Preset.AUTO, **observed(machine))


@pytest.mark.usefixtures("took")
def test_a_signed_image_is_booted_with_secure_boot_on(machine: LoneMachine, learned: MeasurementProfile) -> None:
    assert machine.inside(f"od -An -tu1 -j4 {SECURE_BOOT}").strip() == "1"
    assert learned.assertions.secure_boot
    assert set(HELD) <= set(learned.registers)
    assert accepts(learned, observed(machine)) == ""


@pytest.mark.usefixtures("took")
def test_an_image_without_a_signature_is_not_installed(machine: LoneMachine, learned: MeasurementProfile) -> None:
    refused = ask(machine, state="installed", name="unsigned", image="/var/tmp/first.unsigned.efi")
    assert refused.get("reason") == "BOOT_IMAGE_UNFIT", refused
    assert accepts(learned, observed(machine)) == ""


@pytest.mark.usefixtures("took")
def test_the_next_signed_image_is_measured_as_it_was_computed(
    machine: LoneMachine, learned: MeasurementProfile, pair: tuple[Path, Path]
) -> None:
    machine.inside(OTHER_INITRD)
    image = read_image(install(machine, pair, "second", f"{LINE} loglevel=4", "/var/tmp/initrd"))
    predicted = predict(image, secure_boot=True, reference=learned.reference_events)
    ahead = predict_profile(learned, "second", predicted, label="second")
    assert judge_next_boot(NextBoot(path="second.efi", image=image), [learned, ahead], now=datetime.now(UTC)) == ""
    machine.do("restart", state_disk_mebibytes=256, secure_boot=True)

    boot = observed(machine)
    assert "loglevel=4" in machine.inside("cat /proc/cmdline")
    assert {pcr: boot["pcrs"][pcr] for pcr in HELD} == {pcr: ahead.registers[pcr][0].digest for pcr in HELD}
    assert accepts(ahead, boot) == ""
    assert accepts(learned, boot) == "PCR_MISMATCH"
