# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute the registers of a machine after it boots a unified kernel image, without a boot.

PCR 4: the start of a boot option, a separator, the image, and its kernel. The kernel is not measured if Secure Boot is
on and systemd-stub 252, or 257 and later, starts it. PCR 9: the kernel's load options, then the initrd as the kernel
receives it. PCR 11: name and content of each section that the stub measures, then systemd's phases. Unrecorded boots
raise PREDICTION_INCOMPLETE: stubs 252 and 257 were recorded; for others from 254 on, the sections are those that
systemd documents.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import PolicyError
from ...policy.assertions import (
    FIRMWARE_REGISTER,
    GRUB_REGISTER,
    IMAGE_REGISTER,
    KERNEL_REGISTER,
    PROGRAM_REGISTER,
    SECURE_BOOT_REGISTER,
    Loader,
)
from ...policy.profile import AllowedValue, MeasuredEvent
from ...reasons import Reason
from ..eventlog import kinds
from ..eventlog.kinds import load_options, printable
from ..eventlog.replay import extend, initial_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...policy.profile import MeasurementProfile
    from .pe import KernelImage

PHASES = ("sysinit", "ready")
"""The phases that systemd extends into PCR 11 until a node joins; systemd in the initrd adds two before."""

INITRD_PHASES = ("enter-initrd", "leave-initrd", *PHASES)

_ACTION = b"Calling EFI Application from Boot Option"
_SEPARATOR = bytes(4)
_INITRD_TEXT = "initrd"
_FIRST_SECTIONS = frozenset({".linux", ".osrel", ".cmdline", ".initrd", ".splash", ".dtb", ".pcrpkey"})
_LEARNED_STUB, _FULL_STUB, _UNCHANGED_INITRD_STUB = 252, 254, 252
_INNER_KERNEL_STUB = 257
_INTO_INITRD = (".initrd", ".osrel", ".ucode", ".profile", ".pcrpkey")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The computed values and events, and the reason for each missing register."""

    registers: Mapping[int, bytes]
    events: tuple[MeasuredEvent, ...]
    missing: Mapping[int, str]


def predict(
    image: KernelImage,
    *,
    secure_boot: bool,
    command_line: str | None = None,
    phases: Sequence[str] = PHASES,
    reference: Sequence[MeasuredEvent] = (),
) -> Prediction:
    """Return the values of PCR 4, 9 and 11 after firmware starts ``image`` directly.

    ``command_line`` replaces the image's own. ``reference``: events of a machine of the same kind, which give the event
    of the initrd if stub and initrd are the same.
    """
    missing: dict[int, str] = {}
    events = _programs(image, secure_boot=secure_boot, missing=missing)
    initrd = _initrd(image, reference)
    if initrd is None:
        missing[KERNEL_REGISTER] = (
            f"systemd-stub {image.stub or 'of unknown version'} adds to the initrd, and no reference booted this one"
        )
    else:
        line = image.command_line if command_line is None else command_line
        hashed = load_options(line)[0]
        events.append(_event(KERNEL_REGISTER, hashed, f"kernel command line (load options): {line}"))
        events.append(MeasuredEvent(pcr=KERNEL_REGISTER, digest=initrd, text=_INITRD_TEXT))
    events += image_events(image, phases, missing)
    events = [event for event in events if event.pcr not in missing]
    return Prediction(registers=_replayed(events), events=tuple(events), missing=missing)


def predict_profile(base: MeasurementProfile, name: str, prediction: Prediction, *, label: str) -> MeasurementProfile:
    """Return the profile ``base`` with the computed registers, for machines that will boot the image.

    Other registers (firmware, keys) and assertions are unchanged. A base with another boot path contributes only what
    firmware measures before it starts a program. Raises `PolicyError` PREDICTION_INCOMPLETE if a register of the
    profile cannot be computed.
    """
    if base.loader is not None and base.loader is not Loader.IMAGE:
        base = _before_a_program(base)
        wanted = [PROGRAM_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER]
    else:
        wanted = sorted({PROGRAM_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER} & set(base.registers))
    lacking = [f"PCR {pcr} ({prediction.missing[pcr]})" for pcr in wanted if pcr in prediction.missing]
    if lacking:
        raise _incomplete(base.name, "; ".join(lacking))
    computed = {pcr: (AllowedValue(prediction.registers[pcr], label),) for pcr in wanted}
    kept = [event for event in base.reference_events if event.pcr not in computed]
    return dataclasses.replace(
        base,
        name=name,
        registers=dict(sorted({**base.registers, **computed}.items())),
        reference_events=(*kept, *(event for event in prediction.events if event.pcr in computed)),
        loader=Loader.IMAGE if PROGRAM_REGISTER in computed else base.loader,
        retired=False,
    )


# From another boot path (GRUB, or a kernel) to an image: the measurements before firmware starts the loader.

_UNMOVED = {FIRMWARE_REGISTER, SECURE_BOOT_REGISTER}
_REPLACED = {PROGRAM_REGISTER, GRUB_REGISTER, KERNEL_REGISTER}


def _before_a_program(base: MeasurementProfile) -> MeasurementProfile:
    """Return the part of ``base`` that holds for any program: PCR 0, and PCR 7 up to its separator.

    After the separator, firmware and shim measure the signers of programs. With Secure Boot on, firmware measures the
    signer of the image too, and its event is unknown; raises PREDICTION_INCOMPLETE.
    """
    if SECURE_BOOT_REGISTER not in base.registers:
        raise _incomplete(base.name, f"PCR {SECURE_BOOT_REGISTER} (the profile does not hold it)")
    if base.assertions.secure_boot:
        raise _incomplete(
            base.name,
            f"PCR {SECURE_BOOT_REGISTER} (Secure Boot is on, and no machine of the profile started an image by itself)",
        )
    if base.assertions.sbat_minimum:
        raise _incomplete(base.name, "sbatMinimum (firmware starts the image without shim)")
    moved = sorted(set(base.registers) - _UNMOVED - _REPLACED)
    if moved:
        raise _incomplete(base.name, f"PCR {', '.join(map(str, moved))} (not recorded for another boot path)")
    events = [event for event in base.reference_events if event.pcr == SECURE_BOOT_REGISTER]
    allowed = {value.digest for value in base.registers[SECURE_BOOT_REGISTER]}
    separator = hashlib.sha256(_SEPARATOR).digest()
    if {_replayed(events).get(SECURE_BOOT_REGISTER)} != allowed or separator not in {one.digest for one in events}:
        raise _incomplete(
            base.name, f"PCR {SECURE_BOOT_REGISTER} (expected the events of its one value in the profile)"
        )
    at = [one.digest for one in events].index(separator) + 1
    firmware = {pcr: values for pcr, values in base.registers.items() if pcr == FIRMWARE_REGISTER}
    keys = AllowedValue(_replayed(events[:at])[SECURE_BOOT_REGISTER], f"{base.name}, before it starts a program")
    return dataclasses.replace(
        base,
        registers={**firmware, SECURE_BOOT_REGISTER: (keys,)},
        reference_events=(*(one for one in base.reference_events if one.pcr == FIRMWARE_REGISTER), *events[:at]),
        loader=None,
    )


def _incomplete(name: str, lacking: str) -> PolicyError:
    return PolicyError(
        f"expected to compute every register of {name} that an image moves, could not: {lacking}",
        reason=Reason.PREDICTION_INCOMPLETE,
    )


def image_events(
    image: KernelImage, phases: Sequence[str], missing: dict[int, str] | None = None
) -> list[MeasuredEvent]:
    """Return the events of PCR 11; for an unknown stub, add the reason to ``missing``."""
    known = image.stub == _LEARNED_STUB or image.stub >= _FULL_STUB
    if not known and missing is not None:
        missing[IMAGE_REGISTER] = (
            f"systemd-stub {image.stub or 'of unknown version'} measures sections of its own choice"
        )
    measured = [
        name
        for name in kinds.SECTIONS
        if name in image.sections and (image.stub >= _FULL_STUB or name in _FIRST_SECTIONS)
    ]
    events: list[MeasuredEvent] = []
    for name in measured:
        events.append(_event(IMAGE_REGISTER, f"{name}\0".encode(), f"kernel image has a section {name}"))
        told = f"contents of the kernel image's section {name}"
        if name == ".cmdline":
            told = f"kernel command line (section .cmdline): {image.command_line}"
        events.append(MeasuredEvent(pcr=IMAGE_REGISTER, digest=image.sections[name], text=printable(told)))
    return [*events, *(_event(IMAGE_REGISTER, phase.encode(), f"phase: {phase}") for phase in phases)]


def _programs(image: KernelImage, *, secure_boot: bool, missing: dict[int, str]) -> list[MeasuredEvent]:
    events = [
        _event(PROGRAM_REGISTER, _ACTION, _ACTION.decode()),
        _event(PROGRAM_REGISTER, _SEPARATOR, "separator"),
        MeasuredEvent(pcr=PROGRAM_REGISTER, digest=image.program, text="the unified kernel image"),
    ]
    if not secure_boot:
        events.append(MeasuredEvent(pcr=PROGRAM_REGISTER, digest=image.kernel, text="the kernel in the image"))
    elif image.stub != _LEARNED_STUB and image.stub < _INNER_KERNEL_STUB:
        missing[PROGRAM_REGISTER] = (
            f"no record of how systemd-stub {image.stub or 'of unknown version'} starts its kernel under Secure Boot"
        )
    return events


def _initrd(image: KernelImage, reference: Sequence[MeasuredEvent]) -> bytes | None:
    """Return the digest of the initrd as the kernel receives it, or None if unknown."""
    own = image.sections.get(".initrd")
    if own is not None and image.stub == _UNCHANGED_INITRD_STUB:
        return own
    seen = [event for event in reference if event.pcr == KERNEL_REGISTER and event.text == _INITRD_TEXT]
    booted = _booted_sections(reference)
    same = bool(booted) and all(booted.get(name) == image.sections.get(name) for name in (*_INTO_INITRD, ".sbat"))
    return seen[0].digest if len(seen) == 1 and same else None


def _booted_sections(reference: Sequence[MeasuredEvent]) -> dict[str, bytes]:
    """Return the digests of booted sections by name; the event of a name is followed by that of its content."""
    names = {hashlib.sha256(f"{name}\0".encode()).digest(): name for name in kinds.SECTIONS}
    digests = [event.digest for event in reference if event.pcr == IMAGE_REGISTER]
    return {names[name]: content for name, content in zip(digests[::2], digests[1::2], strict=False) if name in names}


def _event(pcr: int, hashed: bytes, text: str) -> MeasuredEvent:
    return MeasuredEvent(pcr=pcr, digest=hashlib.sha256(hashed).digest(), text=printable(text), proven=True, rank=1)


def _replayed(events: Iterable[MeasuredEvent]) -> dict[int, bytes]:
    values: dict[int, bytes] = {}
    for event in events:
        values[event.pcr] = extend(values.get(event.pcr, initial_value(event.pcr)), event.digest)
    return values
