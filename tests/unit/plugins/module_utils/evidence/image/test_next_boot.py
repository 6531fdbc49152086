# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies ready to be booted: found on disk, told as plain data, held against the profiles in force."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.next_boot import (
    NextBoot,
    find_next_boots,
    judge_next_boot,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.prediction import (
    predict,
    predict_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions, Lockdown
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.presets import Preset
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import AllowedValue
from ansible_collections.attested.kubernetes.tests.support import pe
from ansible_collections.attested.kubernetes.tests.support.boot_facts import learned

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile

IMAGE = pe.image(stub=252)
BOOTED_KERNEL = "ed8f0dbdbefe3994093937f5ee934818ae902b88cb0b6bc423811c10d55b87b0"
BASE = learned("deb13-base", Preset.IMAGE)
SECURE = learned("deb13-secureboot", Preset.SECURE_BOOT)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
REFUSED = "no active profile would accept the machine after booting it"


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def expected(data: bytes = IMAGE, **options: object) -> MeasurementProfile:
    prediction = predict(read_image(data), secure_boot=False, **options)  # type: ignore[arg-type]
    return predict_profile(BASE, "next", prediction, label="x")


def asserting(data: bytes, **assertions: object) -> MeasurementProfile:
    """A profile that holds the very image (PCR 4), and asserts something."""
    program = AllowedValue(predict(read_image(data), secure_boot=False).registers[4], "x")
    told = Assertions(**assertions)  # type: ignore[arg-type]
    return dataclasses.replace(BASE, registers={4: (program,)}, assertions=told)


def judged(data: bytes, *profiles: MeasurementProfile) -> str:
    return judge_next_boot(NextBoot(path="/efi/a.efi", image=read_image(data)), profiles, now=NOW)


def test_images_and_the_newest_kernel_are_found(tmp_path: Path) -> None:
    put(tmp_path / "boot/efi/EFI/Linux/debian.efi", IMAGE)
    for version in ("6.9.0", "6.12.1"):
        put(tmp_path / f"boot/vmlinuz-{version}", version.encode())
        put(tmp_path / f"boot/initrd.img-{version}", b"initrd")
    image, kernel = find_next_boots(tmp_path)
    assert (image.path, image.image) == (str(tmp_path / "boot/efi/EFI/Linux/debian.efi"), read_image(IMAGE))
    assert (kernel.kernel, kernel.initrd) == (hashlib.sha256(b"6.12.1").digest(), hashlib.sha256(b"initrd").digest())


def test_a_machine_without_any_is_found_empty(tmp_path: Path) -> None:
    assert find_next_boots(tmp_path) == ()


def test_an_image_that_cannot_be_read_is_told_with_its_problem(tmp_path: Path) -> None:
    put(tmp_path / "efi/EFI/Linux/broken.efi", b"MZ")
    found = find_next_boots(tmp_path)[0]
    assert "IMAGE_MALFORMED" in found.problem
    assert "cannot be read, so nobody knows" in judge_next_boot(found, [BASE], now=NOW)


def test_it_travels_as_plain_data(tmp_path: Path) -> None:
    put(tmp_path / "boot/vmlinuz-1", b"kernel")
    put(tmp_path / "efi/EFI/Linux/a.efi", IMAGE)
    for found in find_next_boots(tmp_path):
        assert NextBoot.of_mapping(json.loads(json.dumps(found.to_mapping()))) == found


TOLD = NextBoot(path="/efi/a.efi", image=read_image(IMAGE)).to_mapping()


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({}, id="nothing"),
        pytest.param([], id="a list"),
        pytest.param({**TOLD, "kernel": 7}, id="a number for a digest"),
        pytest.param({**TOLD, "kernel": "xy"}, id="a digest that is no hex"),
        pytest.param({**TOLD, "image": "x"}, id="an image that is a text"),
        pytest.param({**TOLD, "image": {**TOLD["image"], "sections": []}}, id="sections in a list"),
        pytest.param({**TOLD, "image": {**TOLD["image"], "stub": float("inf")}}, id="a version without end"),
    ],
)
def test_what_a_machine_tells_otherwise_is_refused(told: Any) -> None:
    with pytest.raises(PolicyError) as caught:
        NextBoot.of_mapping(told)
    assert caught.value.code == "IMAGE_MALFORMED"
    assert "expected what next_boot_info returns" in caught.value.message


@pytest.mark.parametrize("options", [{}, {"phases": ("enter-initrd", "leave-initrd", "sysinit", "ready")}])
def test_an_image_that_a_profile_expects_gives_no_warning(options: dict[str, object]) -> None:
    """Whether systemd runs in the initrd is not in the image, so either way is right."""
    assert judged(IMAGE, BASE, expected(**options)) == ""


def test_an_image_that_no_profile_expects_is_warned_of_with_each_register() -> None:
    other = NextBoot(path="/efi/b.efi", image=read_image(pe.image(stub=252, linux=pe.kernel(b"another"))))
    warning = judge_next_boot(other, [expected()], now=NOW)
    assert warning.startswith(
        "/efi/b.efi: no active profile would accept the machine after booting it (next: PCR 4 will"
    )
    assert "PCR 9" not in warning
    assert "PCR 11 will be" in warning


@pytest.mark.parametrize(
    ("registers", "told"),
    [
        pytest.param({0: bytes(32)}, "", id="the firmware of the profile"),
        pytest.param({0: b"x" * 32}, f"(next: PCR 0 is {(b'x' * 32).hex()})", id="another firmware"),
        pytest.param({4: b"x" * 32}, "", id="what the image moves is not looked at"),
        pytest.param({}, "", id="not shown"),
    ],
)
def test_a_machine_with_another_firmware_is_told(registers: dict[int, bytes], told: str) -> None:
    """PCR 0 is the only one that no boot path moves; a profile without it takes any firmware."""
    profile = expected()
    held = dataclasses.replace(profile, registers={**profile.registers, 0: (AllowedValue(bytes(32), "x"),)})
    free = dataclasses.replace(profile, registers={pcr: profile.registers[pcr] for pcr in (4, 9, 11)})
    found = NextBoot(path="/efi/a.efi", image=read_image(IMAGE))
    warning = judge_next_boot(found, [held], now=NOW, registers=registers)
    assert warning.endswith(told)
    assert bool(warning) == bool(told)
    assert judge_next_boot(found, [free], now=NOW, registers=registers) == ""


def with_line(line: str, *, stub: int = 257) -> bytes:
    return pe.image(stub=stub, cmdline=line.encode(), uname=b"6.12.1")


ALLOWED = "root=LABEL=root ro quiet"


def test_a_profile_that_no_image_moves_expects_every_image() -> None:
    """Preset secure-boot lives through kernel updates."""
    assert judged(with_line(ALLOWED), BASE, SECURE) == ""


def test_an_option_that_is_not_allowed_is_warned_of() -> None:
    data = with_line(f"{ALLOWED} init=/bin/sh")
    options = tuple(ALLOWED.split())
    assert judged(with_line(ALLOWED), asserting(with_line(ALLOWED), boot_options=options)) == ""
    warning = judged(data, asserting(data, boot_options=options))
    assert f"{REFUSED} (deb13-base: assertion: expected no other boot option than" in warning
    assert warning.endswith(", got init=/bin/sh)")


def test_assertions_of_a_profile_that_holds_no_loader_are_warned_of() -> None:
    data = with_line(ALLOWED)
    free = dataclasses.replace(SECURE, assertions=Assertions(boot_options=("ro",)), loader=BASE.loader)
    assert "got a profile that does not say who measured it" in judged(data, free)


@pytest.mark.parametrize(
    ("data", "assertions", "told"),
    [
        pytest.param(
            with_line(f"{ALLOWED} lockdown=integrity"), {"lockdown": Lockdown.INTEGRITY}, "", id="lockdown asked for"
        ),
        pytest.param(
            with_line(ALLOWED),
            {"lockdown": Lockdown.INTEGRITY},
            "expected lockdown=integrity on the kernel's command line, got none",
            id="lockdown left out",
        ),
        pytest.param(with_line(ALLOWED), {"kernels": ("6.12.1",)}, "", id="an accepted release"),
        pytest.param(
            with_line(ALLOWED),
            {"kernels": ("6.12.2",)},
            "expected a kernel of the releases 6.12.2, got one whose hash is",
            id="another release",
        ),
        pytest.param(
            with_line(ALLOWED, stub=252),
            {"kernels": ("6.12.1",)},
            "got no release in the log",
            id="a stub that does not measure the release",
        ),
        pytest.param(
            with_line(ALLOWED, stub=253),
            {"kernels": ("6.12.1",)},
            "the kernel's release cannot be computed: systemd-stub 253 measures sections of its own choice",
            id="a stub that nobody compared",
        ),
        pytest.param(
            pe.image(cmdline=b""),
            {"lockdown": Lockdown.INTEGRITY, "boot_options": ("quiet",)},
            "",
            id="no command line of its own: whoever starts it gives one",
        ),
        pytest.param(
            with_line(" "), {"boot_options": ("quiet",)}, "got no command line that the log proves", id="an empty one"
        ),
        pytest.param(
            with_line("quiet\u00a0quiet"),
            {"boot_options": ("quiet",)},
            "got no command line that the log proves",
            id="one that the kernel reads otherwise",
        ),
        pytest.param(with_line(ALLOWED), {"firmware_minimum": "9999"}, "", id="firmware, which no image tells"),
    ],
)
def test_what_an_image_tells_is_held_against_assertions(data: bytes, assertions: dict[str, object], told: str) -> None:
    warning = judged(data, asserting(data, **assertions))
    assert told in warning
    assert bool(warning) is bool(told)


def test_registers_and_assertions_are_told_together() -> None:
    """An image whose registers are expected may still break what is asserted."""
    wanted = dataclasses.replace(expected(), assertions=Assertions(kernels=("6.12.2",)))
    assert f"{REFUSED} (next: assertion: expected a kernel of the releases 6.12.2" in judged(IMAGE, wanted)
    other = judged(pe.image(stub=252, linux=pe.kernel(b"another")), wanted)
    assert "next: PCR 4 will be" in other
    assert ", assertion: expected a kernel" in other


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param({"retired": True}, "retired", id="retired"),
        pytest.param({"registers": {}}, "without values for a register", id="without registers"),
        pytest.param({"registers": {7: ()}}, "without values for a register", id="without a value"),
        pytest.param({"expires": NOW}, "expired at 2026-11-22T12:00:00+00:00", id="expired this moment"),
    ],
)
def test_profiles_out_of_force_expect_nothing(change: dict[str, object], told: str) -> None:
    """Also where no other profile is left; the same profile in force would expect the image."""
    assert judged(IMAGE, expected()) == ""
    gone = dataclasses.replace(expected(), **change)  # type: ignore[arg-type]
    assert judged(IMAGE, gone) == f"/efi/a.efi: {REFUSED} (next: {told})"
    assert f"; next: {told})" in judged(IMAGE, BASE, gone)


def test_a_profile_expects_until_it_expires() -> None:
    assert judged(IMAGE, dataclasses.replace(expected(), expires=NOW + timedelta(seconds=1))) == ""


def test_without_any_profile_nothing_is_expected() -> None:
    assert judged(IMAGE) == f"/efi/a.efi: {REFUSED} (there is none)"


@pytest.mark.parametrize(
    ("kernel", "initrd", "told"),
    [
        pytest.param(
            "ed8f0dbdbefe3994093937f5ee934818ae902b88cb0b6bc423811c10d55b87b0", "", "", id="the booted kernel"
        ),
        pytest.param("00" * 32, "", "kernel in no reference event of PCR 9", id="another kernel"),
        pytest.param("00" * 32, "11" * 32, "kernel and initrd in no reference event", id="another of both"),
    ],
)
def test_a_kernels_file_is_looked_for_in_what_grub_measured(kernel: str, initrd: str, told: str) -> None:
    found = NextBoot(path="/boot/vmlinuz-1", kernel=bytes.fromhex(kernel), initrd=bytes.fromhex(initrd))
    warning = judge_next_boot(found, [learned("deb13-grub")], now=NOW)
    assert told in warning
    assert bool(warning) is bool(told)
