# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Presets on recorded boots: what they hold, what they live through, and where they are refused."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy import (
    DEFAULT_REGISTERS,
    STRICT_REGISTERS,
    Assertions,
    Posture,
    Preset,
)
from ansible_collections.attested.kubernetes.tests.support.boot_facts import accepted, judged, learned, refused

GRUB = "deb13-grub-secureboot"


@pytest.mark.parametrize(
    ("boot", "preset", "registers"),
    [
        (GRUB, Preset.SECURE_BOOT, (7,)),
        (GRUB, Preset.AUTO, (7,)),
        ("deb13-base", Preset.AUTO, DEFAULT_REGISTERS),
        ("deb13-base", Preset.IMAGE, (4, 7, 9, 11)),
        ("deb13-secureboot", Preset.STRICT, STRICT_REGISTERS),
    ],
)
def test_a_preset_holds_its_registers(boot: str, preset: Preset, registers: tuple[int, ...]) -> None:
    profile = learned(boot, preset)
    assert tuple(profile.registers) == registers
    assert profile.posture is Posture.BOOT
    assert accepted(boot, profile).profile == boot


def test_the_default_without_secure_boot_is_the_plain_profile_of_the_lab() -> None:
    assert learned("deb13-base").assertions == Assertions()


def test_secure_boot_is_asserted_wherever_it_is_on() -> None:
    """So that a profile cannot be learned with it and be met without it."""
    assert learned("deb13-secureboot", Preset.IMAGE).assertions == Assertions(secure_boot=True)
    assert learned("deb13-secureboot").assertions.boot_options == (
        "root=LABEL=root",
        "rw",
        "console=ttyS0",
        "quiet",
        "systemd.show_status=auto",
    )


def test_secure_boot_lives_through_updates_of_kernel_and_initrd() -> None:
    """Register 7 alone is held: another kernel, initrd or loader signed by the same keys is accepted."""
    profile = learned(GRUB)
    boot = judged(GRUB)
    line = boot.facts.command_lines[0].replace("6.12.117", "6.12.120")
    updated = dataclasses.replace(boot.facts, command_lines=(line,))
    assert not {4, 8, 9, 11} & set(profile.registers)
    assert accepted(GRUB, profile, facts=updated, pcrs={**boot.pcrs, 4: b"n" * 32, 9: b"n" * 32}).profile == GRUB


def test_secure_boot_refuses_another_boot_option() -> None:
    boot = judged(GRUB)
    tampered = dataclasses.replace(boot.facts, command_lines=(f"{boot.facts.command_lines[0]} init=/bin/sh",))
    error = refused(GRUB, learned(GRUB), facts=tampered)
    assert error.code == "BOOT_OPTION_UNKNOWN"
    assert "got init=/bin/sh" in error.message


@pytest.mark.parametrize("boot", ["deb13-secbootfw-off", "deb13-base"])
def test_secure_boot_off_is_refused_by_register_and_assertion(boot: str) -> None:
    error = refused(boot, learned("deb13-secureboot"))
    assert (error.code, [one.pcr for one in error.registers]) == ("PCR_MISMATCH", [7])
    assert "assertion: expected Secure Boot on, got it off" in error.message


@pytest.mark.parametrize(
    ("boot", "preset", "told"),
    [
        pytest.param("deb13-base", Preset.SECURE_BOOT, "one where it is off", id="Secure Boot off"),
        pytest.param("deb13-grub", Preset.IMAGE, "PCR 11 untouched", id="no unified kernel image"),
    ],
)
def test_a_machine_that_is_not_what_the_preset_is_for_teaches_nothing(boot: str, preset: Preset, told: str) -> None:
    with pytest.raises(PolicyError, match=told) as caught:
        learned(boot, preset)
    assert caught.value.code == "PRESET_UNMET"
