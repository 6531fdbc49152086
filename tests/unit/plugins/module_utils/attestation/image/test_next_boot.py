# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies ready to be booted: found on disk, told as plain data, held against the profiles in force."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.attestation.image import (
    NextBoot,
    find_next_boots,
    judge_next_boot,
    predict,
    predict_profile,
    read_image,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy import Preset
from ansible_collections.attested.kubernetes.tests.support import pe
from ansible_collections.attested.kubernetes.tests.support.boot_facts import learned

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = pe.image(stub=252)
BOOTED_KERNEL = "ed8f0dbdbefe3994093937f5ee934818ae902b88cb0b6bc423811c10d55b87b0"
BASE = learned("deb13-base", Preset.IMAGE)


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def expected(data: bytes = IMAGE, **options: object) -> object:
    prediction = predict(read_image(data), secure_boot=False, **options)  # type: ignore[arg-type]
    return predict_profile(BASE, "next", prediction, label="x")


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
    assert "cannot be read, so nobody knows" in judge_next_boot(found, [BASE])


def test_it_travels_as_plain_data(tmp_path: Path) -> None:
    put(tmp_path / "boot/vmlinuz-1", b"kernel")
    put(tmp_path / "efi/EFI/Linux/a.efi", IMAGE)
    for found in find_next_boots(tmp_path):
        assert NextBoot.of_mapping(json.loads(json.dumps(found.to_mapping()))) == found


@pytest.mark.parametrize("options", [{}, {"phases": ("enter-initrd", "leave-initrd", "sysinit", "ready")}])
def test_an_image_that_a_profile_expects_gives_no_warning(options: dict[str, object]) -> None:
    """Whether systemd runs in the initrd is not in the image, so either way is right."""
    found = NextBoot(path="/efi/a.efi", image=read_image(IMAGE))
    assert judge_next_boot(found, [BASE, expected(**options)]) == ""  # type: ignore[list-item]


def test_an_image_that_no_profile_expects_is_warned_of_with_each_register() -> None:
    other = NextBoot(path="/efi/b.efi", image=read_image(pe.image(stub=252, linux=pe.kernel(b"another"))))
    warning = judge_next_boot(other, [expected()])  # type: ignore[list-item]
    assert warning.startswith(
        "/efi/b.efi: no active profile would accept the machine after booting it (next: PCR 4 will"
    )
    assert "PCR 9" not in warning
    assert "PCR 11 will be" in warning


def test_a_profile_that_no_image_moves_expects_every_image() -> None:
    """Preset secure-boot lives through kernel updates."""
    found = NextBoot(path="/efi/b.efi", image=read_image(IMAGE))
    assert judge_next_boot(found, [BASE, learned("deb13-secureboot")]) == ""


def test_a_retired_profile_expects_nothing() -> None:
    found = NextBoot(path="/efi/a.efi", image=read_image(IMAGE))
    retired = dataclasses.replace(expected(), retired=True)  # type: ignore[type-var]
    assert "no active profile" in judge_next_boot(found, [BASE, retired])


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
    warning = judge_next_boot(found, [learned("deb13-grub")])
    assert told in warning
    assert bool(warning) is bool(told)
