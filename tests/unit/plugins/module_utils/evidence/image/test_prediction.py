# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Registers computed ahead, held against recorded boots: what was computed is what their TPMs held."""

from __future__ import annotations

import dataclasses
import hashlib
import re

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog import kinds
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import parse_firmware_log
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import KernelImage, read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.prediction import (
    predict,
    predict_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Loader
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import MeasurementMismatch
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import AllowedValue, Posture
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots, pe
from ansible_collections.attested.kubernetes.tests.support.boot_facts import accepted, judged, learned

IMAGES = (
    "deb12-base",
    "deb13-base",
    "deb13-base-again",
    "deb13-cmdline",
    "deb13-firmware",
    "deb13-initrd",
    "deb13-secbootfw-off",
    "deb13-secureboot",
)
OTHER = predict(read_image(pe.image(stub=252)), secure_boot=False)
_SECTION = re.compile(r"^  (\.\w+): size \d+, sha256 ([0-9a-f]{64})$", re.MULTILINE)
_STUB = re.compile(r"systemd-stub (\d+)|^systemd: systemd (\d+)", re.MULTILINE)


def image_of(name: str) -> KernelImage:
    """The image as it was written down before the boot; its files are not kept, so the digests of both programs are
    taken from another boot of them: the PE digest itself is held against pesign in the component tests."""
    told = {section: bytes.fromhex(digest) for section, digest in _SECTION.findall(boots.facts(name))}
    programs = [
        event.digests[ALG_SHA256]
        for event in parse_firmware_log(boots.load(name).firmware).events
        if event.kind == kinds.EV_EFI_BOOT_SERVICES_APPLICATION
    ]
    base = parse_firmware_log(boots.load("deb13-base").firmware).events
    kernel = [one.digests[ALG_SHA256] for one in base if one.kind == kinds.EV_EFI_BOOT_SERVICES_APPLICATION][-1]
    return KernelImage(
        program=programs[0],
        kernel=programs[1] if name.startswith("deb12") else kernel,
        sections={name: told[name] for name in kinds.SECTIONS if name in told},
        stub=252 if name.startswith("deb12") else 257,
        command_line=boots.load(name).command_line.decode().strip(),
    )


@pytest.mark.parametrize("name", IMAGES)
def test_register_11_is_computed_as_it_was_measured(name: str) -> None:
    predicted = predict(image_of(name), secure_boot=False)
    assert predicted.registers[11] == boots.load(name).pcrs[11]


@pytest.mark.parametrize("name", IMAGES)
def test_register_4_is_computed_as_it_was_measured(name: str) -> None:
    """Surprise 3: under Secure Boot firmware does not measure the kernel that stub 257 starts."""
    predicted = predict(image_of(name), secure_boot=name == "deb13-secureboot")
    assert predicted.registers[4] == boots.load(name).pcrs[4]


def test_under_secure_boot_stub_252_starts_a_kernel_that_nobody_measures() -> None:
    """A virtual machine with Debian 12: the digest of its signed image, and what PCR 4 then held."""
    program = bytes.fromhex("7f7deeda567ffebb6ecd6beacf514a7051d1b526d21a8916dbe4f73bb233a8a7")
    image = dataclasses.replace(image_of("deb12-base"), program=program)
    predicted = predict(image, secure_boot=True)
    assert predicted.registers[4].hex() == "231b74070ff0ce4556666c48b0b9f56b5f99c0c1df4ed4e0168b7c05f61ce967"
    assert predicted.missing == {}


def test_register_9_is_computed_where_the_stub_leaves_the_initrd_alone() -> None:
    predicted = predict(image_of("deb12-base"), secure_boot=False)
    assert predicted.registers[9] == boots.load("deb12-base").pcrs[9]
    assert predicted.missing == {}


@pytest.mark.parametrize("name", ["deb13-base-again", "deb13-cmdline", "deb13-secureboot", "deb13-firmware"])
def test_register_9_is_computed_from_a_machine_that_booted_the_same_initrd(name: str) -> None:
    """Surprise 6: stub 257 adds to the initrd, so its event is taken from a boot of the same stub and initrd."""
    predicted = predict(image_of(name), secure_boot=False, reference=learned("deb13-base").reference_events)
    assert predicted.registers[9] == boots.load(name).pcrs[9]


def test_register_9_of_another_initrd_is_not_computed() -> None:
    predicted = predict(image_of("deb13-initrd"), secure_boot=False, reference=learned("deb13-base").reference_events)
    assert set(predicted.registers) == {4, 11}
    assert "no reference booted this one" in predicted.missing[9]


def test_a_computed_profile_accepts_the_machine_when_it_has_booted() -> None:
    """The whole way: learned before the change, computed for the new command line, met by the real boot."""
    base = learned("deb13-base")
    prediction = predict(image_of("deb13-cmdline"), secure_boot=False, reference=base.reference_events)
    ahead = predict_profile(base, "next", prediction, label="with attested.tampered=1")
    verdict = accepted("deb13-cmdline", base, ahead)
    assert (verdict.profile, verdict.labels[9], verdict.labels[0]) == ("next", "with attested.tampered=1", "deb13-base")
    assert accepted("deb13-base", base, ahead).profile == "deb13-base"


def test_a_computed_profile_explains_with_computed_events() -> None:
    base = learned("deb13-base")
    prediction = predict(image_of("deb13-cmdline"), secure_boot=False, reference=base.reference_events)
    events = predict_profile(base, "next", prediction, label="x").reference_events
    assert {event.pcr for event in events} == {0, 4, 7, 9, 11}
    measured = {(event.pcr, event.digest) for event in judged("deb13-cmdline").events}
    assert {(event.pcr, event.digest) for event in events} <= measured


def test_a_register_that_the_profile_does_not_hold_need_not_be_computed() -> None:
    image = dataclasses.replace(image_of("deb13-initrd"))
    base = learned("deb13-base", Preset.IMAGE)
    without = dataclasses.replace(base, registers={pcr: base.registers[pcr] for pcr in (4, 7, 11)})
    ahead = predict_profile(without, "next", predict(image, secure_boot=False), label="x")
    assert accepted("deb13-initrd", ahead).profile == "next"


@pytest.mark.parametrize(
    ("image", "secure_boot", "told"),
    [
        pytest.param(
            read_image(pe.image(stub=253)), False, "stub 253 measures sections of its own choice", id="stub 253"
        ),
        pytest.param(read_image(pe.image(sbat=b"x")), False, "of unknown version", id="a stub without a version"),
        pytest.param(read_image(pe.image(stub=251)), True, "starts its kernel under Secure Boot", id="251 under it"),
        pytest.param(read_image(pe.image(stub=256)), True, "starts its kernel under Secure Boot", id="256 under it"),
        pytest.param(read_image(pe.image()), False, "adds to the initrd", id="an initrd that nobody booted"),
    ],
)
def test_what_nobody_saw_is_not_computed(image: KernelImage, secure_boot: bool, told: str) -> None:
    with pytest.raises(PolicyError, match=told) as caught:
        predict_profile(learned("deb13-base"), "next", predict(image, secure_boot=secure_boot), label="x")
    assert caught.value.code == "PREDICTION_INCOMPLETE"


def test_from_grub_to_an_image_firmware_and_keys_are_those_of_a_machine_that_starts_it_itself() -> None:
    """deb13-grub and deb13-base are one machine: shim's own events of PCR 7 are left out, and PCR 8 is GRUB's."""
    ahead = predict_profile(learned("deb13-grub"), "next", OTHER, label="x")
    measured = boots.load("deb13-base").pcrs
    values = {pcr: [one.digest for one in allowed] for pcr, allowed in ahead.registers.items()}
    assert list(values) == [0, 4, 7, 9, 11]
    assert (values[0], values[7]) == ([measured[0]], [measured[7]])
    assert measured[7] != boots.load("deb13-grub").pcrs[7]
    assert {pcr: values[pcr] for pcr in (4, 9, 11)} == {pcr: [OTHER.registers[pcr]] for pcr in (4, 9, 11)}
    assert (ahead.loader, ahead.posture) == (Loader.IMAGE, Posture.BOOT)


def test_the_events_of_another_boot_path_are_left_out() -> None:
    events = predict_profile(learned("deb13-grub"), "next", OTHER, label="x").reference_events
    measured = {(event.pcr, event.digest) for event in judged("deb13-base").events}
    assert {(event.pcr, event.digest) for event in events if event.pcr in {0, 7}} <= measured
    assert [event for event in events if event.pcr in {4, 9, 11}] == list(OTHER.events)


def test_a_profile_from_grub_accepts_the_image_and_no_longer_grub() -> None:
    """The real boots, with the programs of the image that deb12-base's recorder wrote down."""
    base = learned("deb13-grub")
    prediction = predict(image_of("deb12-base"), secure_boot=False)
    ahead = predict_profile(base, "next", prediction, label="x")
    there, image = judged("deb13-base"), judged("deb12-base")
    pcrs = {**there.pcrs, **{pcr: image.pcrs[pcr] for pcr in (4, 9, 11)}}
    assert accepted("deb13-base", ahead, pcrs=pcrs).profile == "next"
    with pytest.raises(MeasurementMismatch):
        accepted("deb13-grub", ahead)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"registers": (4, 8, 9)}, r"PCR 7 \(the profile does not hold it\)", id="keys are free"),
        pytest.param({"secure_boot": True}, r"PCR 7 \(Secure Boot is on", id="Secure Boot"),
        pytest.param({"sbat_minimum": {"shim": 4}}, "sbatMinimum", id="shim's level"),
        pytest.param({"strict": True}, r"PCR 1, 2, 3, 5, 6, 11, 12, 13, 14 \(not recorded", id="strict"),
        pytest.param({"reference_events": ()}, "expected the events of its one value", id="no events"),
        pytest.param({"second": True}, "expected the events of its one value", id="two values"),
    ],
)
def test_what_a_machine_with_grub_does_not_tell_is_not_computed(changes: dict[str, object], told: str) -> None:
    base = learned("deb13-grub", Preset.STRICT if changes.pop("strict", False) else Preset.AUTO)
    if wanted := changes.pop("registers", None):
        changes["registers"] = {pcr: base.registers[pcr] for pcr in wanted}  # type: ignore[attr-defined]
    if changes.pop("second", False):
        changes["registers"] = {**base.registers, 7: (*base.registers[7], AllowedValue(bytes(32), "other"))}
    if "secure_boot" in changes or "sbat_minimum" in changes:
        changes = {"assertions": dataclasses.replace(base.assertions, **changes)}  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=told) as caught:
        predict_profile(dataclasses.replace(base, **changes), "next", OTHER, label="x")  # type: ignore[arg-type]
    assert caught.value.code == "PREDICTION_INCOMPLETE"


def test_events_without_a_separator_do_not_say_what_firmware_measured() -> None:
    base = learned("deb13-grub")
    event = next(one for one in base.reference_events if one.pcr == 7)
    value = hashlib.sha256(bytes(32) + event.digest).digest()
    cut = dataclasses.replace(
        base, reference_events=(event,), registers={**base.registers, 7: (AllowedValue(value, "x"),)}
    )
    with pytest.raises(PolicyError, match="expected the events of its one value"):
        predict_profile(cut, "next", OTHER, label="x")


def test_what_cannot_be_computed_of_the_image_is_told_from_grub_too() -> None:
    with pytest.raises(PolicyError, match=r"PCR 9 \(systemd-stub 257 adds to the initrd"):
        predict_profile(learned("deb13-grub"), "next", predict(read_image(pe.image()), secure_boot=False), label="x")


@pytest.mark.parametrize(("held", "loader"), [((4, 7, 9, 11), Loader.IMAGE), ((7, 9, 11), None)])
def test_who_measures_is_known_of_an_image_that_is_held(held: tuple[int, ...], loader: Loader | None) -> None:
    base = learned("deb13-base", Preset.IMAGE)
    before = dataclasses.replace(base, loader=None, registers={pcr: base.registers[pcr] for pcr in held})
    ahead = predict_profile(before, "next", predict(read_image(pe.image(stub=252)), secure_boot=False), label="x")
    assert ahead.loader is loader


def test_another_command_line_than_the_images_own_is_computed_too() -> None:
    image = read_image(pe.image(stub=252))
    own, other = (predict(image, secure_boot=False, command_line=line) for line in (None, "quiet"))
    assert own.registers[9] != other.registers[9]
    assert own.registers[11] == other.registers[11]
