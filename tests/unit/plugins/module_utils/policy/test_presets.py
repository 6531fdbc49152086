# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Presets on recorded boots: what they hold, what they live through, and where they are refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions, Loader
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import (
    DEFAULT_REGISTERS,
    STRICT_REGISTERS,
    Preset,
    learn_preset,
    learn_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    parse_documents,
    render_document,
    render_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasuredEvent, Posture
from ansible_collections.attested.kubernetes.tests.support import preset_table
from ansible_collections.attested.kubernetes.tests.support.boot_facts import accepted, judged, learned, refused

GRUB, SIGNED = "deb13-grub-secureboot", "deb13-secureboot"


def learned_with(name: str, preset: Preset, **facts: Any) -> Any:
    boot = judged(name)
    changed = dataclasses.replace(boot.facts, **facts)
    return learn_preset(name, preset, pcrs=boot.pcrs, events=boot.events, facts=changed, label=name)


@pytest.mark.parametrize(
    ("boot", "preset", "registers", "posture", "loader"),
    [
        (GRUB, Preset.AUTO, (4, 7, 8, 9), Posture.BOOT, Loader.GRUB),
        ("deb13-grub", Preset.AUTO, (0, 4, 7, 8, 9), Posture.BOOT, Loader.GRUB),
        ("deb13-base", Preset.AUTO, DEFAULT_REGISTERS, Posture.BOOT, Loader.IMAGE),
        (SIGNED, Preset.AUTO, (4, 7, 9, 11), Posture.BOOT, Loader.IMAGE),
        ("deb13-base", Preset.IMAGE, (4, 7, 9, 11), Posture.BOOT, Loader.IMAGE),
        (SIGNED, Preset.STRICT, STRICT_REGISTERS, Posture.BOOT, Loader.IMAGE),
        (SIGNED, Preset.SECURE_BOOT, (7,), Posture.KEYS, None),
    ],
)
def test_a_preset_holds_its_registers(
    boot: str, preset: Preset, registers: tuple[int, ...], posture: Posture, loader: Loader | None
) -> None:
    profile = learned(boot, preset)
    assert (tuple(profile.registers), profile.posture, profile.loader) == (registers, posture, loader)
    assert accepted(boot, profile).posture is posture


@pytest.mark.parametrize(
    ("loader", "registers", "posture"),
    [
        pytest.param(Loader.KERNEL, (0, 4, 7, 9), Posture.BOOT, id="a kernel alone"),
        pytest.param(None, (0, 4, 7, 8, 9, 11), Posture.KEYS, id="nobody knows who measured, so all of it"),
    ],
)
def test_the_default_holds_what_loads_and_is_loaded_on_any_path(
    loader: Loader | None, registers: tuple[int, ...], posture: Posture
) -> None:
    profile = learned_with("deb13-base", Preset.AUTO, loader=loader)
    assert (tuple(profile.registers), profile.posture, profile.loader) == (registers, posture, loader)


@pytest.mark.parametrize("preset", Preset)
@pytest.mark.parametrize("boot", preset_table.recorded())
def test_what_is_said_of_a_preset_is_what_it_refuses(boot: str, preset: Preset) -> None:
    """Posture boot is said if and only if another initrd, command line, kernel or loader is refused."""
    row = preset_table.row(boot, preset)
    assert (row.posture == "boot") == ({"initrd", "command line", "kernel", "loader"} == set(row.refused))
    assert row.posture in ({"PRESET_UNMET"} if not row.registers else {"boot", "keys"})


def test_no_default_leaves_the_initrd_free() -> None:
    assert {preset_table.row(boot, Preset.AUTO).posture for boot in preset_table.recorded()} == {"boot"}


def test_a_register_that_nothing_was_measured_into_holds_nothing() -> None:
    """An old GRUB measures no file: the profile holds a zero, and says so."""
    boot = judged(GRUB)
    profile = learn_preset(
        "x", Preset.AUTO, pcrs={**boot.pcrs, 9: bytes(32)}, events=boot.events, facts=boot.facts, label="x"
    )
    assert (profile.registers[9][0].digest, profile.posture) == (bytes(32), Posture.KEYS)


def test_secure_boot_is_asserted_wherever_it_is_on() -> None:
    """So that a profile cannot be learned with it and be met without it."""
    for preset in Preset:
        assert learned(SIGNED, preset).assertions == Assertions(secure_boot=True)
    assert learned("deb13-base").assertions == Assertions()


def test_secure_boot_lives_through_updates_of_a_signed_image() -> None:
    """Register 7 alone is held: another image signed by the same key is accepted."""
    profile, boot = learned(SIGNED, Preset.SECURE_BOOT), judged(SIGNED)
    updated = {**boot.pcrs, 4: b"n" * 32, 9: b"n" * 32, 11: b"n" * 32}
    assert accepted(SIGNED, profile, pcrs=updated).profile == SIGNED
    assert refused(SIGNED, profile, pcrs={**boot.pcrs, 7: b"n" * 32}).code == "PCR_MISMATCH"


@pytest.mark.parametrize("boot", ["deb13-secbootfw-off", "deb13-base"])
def test_secure_boot_off_is_refused_by_register_and_assertion(boot: str) -> None:
    error = refused(boot, learned(SIGNED, Preset.SECURE_BOOT))
    assert (error.code, [one.pcr for one in error.registers]) == ("PCR_MISMATCH", [7])
    assert "assertion: expected Secure Boot on, got it off" in error.message


@pytest.mark.parametrize(
    ("boot", "preset", "facts", "told"),
    [
        pytest.param("deb13-base", Preset.SECURE_BOOT, {}, "one where it is off", id="Secure Boot off"),
        pytest.param(SIGNED, Preset.SECURE_BOOT, {"secure_boot": None}, "not proven by its log", id="not proven"),
        pytest.param(
            GRUB, Preset.SECURE_BOOT, {}, "unsigned initrd; auto holds PCR 4, 7, 8, 9 of it", id="GRUB with Secure Boot"
        ),
        pytest.param(
            SIGNED,
            Preset.SECURE_BOOT,
            {"alone": False},
            "got another program besides",
            id="another program beside",
        ),
        pytest.param(
            SIGNED,
            Preset.SECURE_BOOT,
            {"alone": False, "loader": Loader.KERNEL},
            "whose initrd is unsigned; auto holds PCR 4, 7, 9 of it",
            id="a kernel alone",
        ),
        pytest.param("deb13-grub", Preset.IMAGE, {}, "got GRUB, .*; auto holds PCR 0, 4, 7, 8, 9", id="no image"),
        pytest.param(
            "deb13-base", Preset.IMAGE, {"loader": None}, "a boot path that its log does not show", id="unknown"
        ),
    ],
)
def test_a_machine_that_is_not_what_the_preset_is_for_teaches_nothing(
    boot: str, preset: Preset, facts: dict[str, Any], told: str
) -> None:
    with pytest.raises(PolicyError, match=told) as caught:
        learned_with(boot, preset, **facts)
    assert caught.value.code == "PRESET_UNMET"


def events_of(pcr: int, count: int) -> list[MeasuredEvent]:
    return [MeasuredEvent(pcr=pcr, digest=n.to_bytes(32, "big"), text=f"event {n}", proven=True) for n in range(count)]


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        pytest.param({4: 24, 7: 1000}, {4: 24, 7: 1000}, id="as many as there is room for"),
        pytest.param({4: 25, 7: 1000}, {4: 25}, id="one more"),
        pytest.param({0: 1000, 4: 24, 7: 4000}, {0: 1000, 4: 24}, id="the largest register first, and whole"),
        pytest.param({4: 4096}, {}, id="one register of a whole log"),
    ],
)
def test_a_profile_of_a_machine_with_many_events_is_one_that_can_be_read(
    counts: dict[int, int], kept: dict[int, int]
) -> None:
    """A log may have four times the events that a profile has room for; half a register would explain wrongly."""
    events = [event for pcr, count in counts.items() for event in events_of(pcr, count)]
    profile = learn_profile("x", pcrs=dict.fromkeys(counts, b"v" * 32), events=events, registers=counts)
    (read,) = parse_documents([("x", render_document(render_profile(profile)))]).profiles
    assert {pcr: sum(one.pcr == pcr for one in read.reference_events) for pcr in kept} == kept
    assert len(read.reference_events) == sum(kept.values())
