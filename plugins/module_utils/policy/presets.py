# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Presets: named choices of registers and assertions for learning a profile."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..reasons import Reason
from .assertions import (
    FIRMWARE_REGISTER,
    GRUB_REGISTER,
    IMAGE_REGISTER,
    KERNEL_REGISTER,
    PROGRAM_REGISTER,
    SECURE_BOOT_REGISTER,
    Assertions,
    Loader,
)
from .profile import MAX_REFERENCE_EVENTS, AllowedValue, MeasurementProfile, Posture, least

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .assertions import BootFacts
    from .profile import MeasuredEvent


# A profile from a machine whose evidence was verified.

DEFAULT_REGISTERS = (0, 4, 7, 9, 11)
"""Firmware, boot programs, Secure Boot, command line and initrd, kernel image; IMA's 10 is left out."""


def learn_profile(
    name: str,
    *,
    pcrs: Mapping[int, bytes],
    events: Iterable[MeasuredEvent],
    registers: Iterable[int] = DEFAULT_REGISTERS,
    label: str = "learned",
) -> MeasurementProfile:
    """Return the profile that allows exactly the values of one verified quote, with its events for explanations.

    ``pcrs``: the values of the verified quote. The posture is ``boot`` at most: values alone show no more.
    Raises `PolicyError` POLICY_EMPTY without registers, QUOTE_SELECTION for a register that was not quoted.
    """
    wanted = tuple(sorted(set(registers)))
    if not wanted:
        raise PolicyError("expected registers to learn, got none", reason=Reason.POLICY_EMPTY)
    missing = [pcr for pcr in wanted if pcr not in pcrs]
    if missing:
        raise PolicyError(f"expected a quote over {list(wanted)}, it lacks {missing}", reason=Reason.QUOTE_SELECTION)
    found = MeasurementProfile(
        name=name,
        posture=Posture.KEYS,
        registers={pcr: (AllowedValue(pcrs[pcr], label),) for pcr in wanted},
        reference_events=_explaining(tuple(event for event in events if event.pcr in wanted)),
    )
    return replace(found, posture=least(Posture.BOOT, found.reach))


def _explaining(events: tuple[MeasuredEvent, ...]) -> tuple[MeasuredEvent, ...]:
    """Return the events that fit into a profile, all or none of a register: a part of them would explain wrongly.

    The registers with the most events are left out first; they are the option ROMs and tables of large servers.
    """
    by_register = Counter(event.pcr for event in events)
    while by_register.total() > MAX_REFERENCE_EVENTS:
        del by_register[max(by_register, key=lambda pcr: by_register[pcr])]
    return tuple(event for event in events if event.pcr in by_register)


STRICT_REGISTERS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14)
"""All that firmware, loaders and systemd measure; IMA's 10 has no reference value, and 15 is the node lock's."""

IMAGE_REGISTERS = (PROGRAM_REGISTER, SECURE_BOOT_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER)

READING_REGISTERS = (0, 4, 7, 8, 9, 11)
"""The registers to quote for learning any other preset and for reading a boot: all that facts are derived from."""

_LOADED = {
    Loader.GRUB: (PROGRAM_REGISTER, SECURE_BOOT_REGISTER, GRUB_REGISTER, KERNEL_REGISTER),
    Loader.IMAGE: IMAGE_REGISTERS,
    Loader.KERNEL: (PROGRAM_REGISTER, SECURE_BOOT_REGISTER, KERNEL_REGISTER),
    None: (PROGRAM_REGISTER, SECURE_BOOT_REGISTER, GRUB_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER),
}
"""The registers of loaders and loaded files, by the loader that the logs show; all of them if there is not one."""

_FOUND = {
    Loader.GRUB: "GRUB, which loads an unsigned initrd",
    Loader.IMAGE: "another program besides the image (shim, a boot manager or another signer's)",
    Loader.KERNEL: "a kernel without an image around it, whose initrd is unsigned",
    None: "a boot path that its log does not show",
}


class Preset(Enum):
    """The registers that a profile holds."""

    AUTO = "auto"
    """Loaders and loaded files on any boot path; the firmware too unless Secure Boot is proven to be on."""
    IMAGE = "image"
    """One unified kernel image; every kernel update needs a new value, which can be computed in advance."""
    SECURE_BOOT = "secure-boot"
    """The keys that may sign the image, not its content: for machines that start only a signed unified image."""
    STRICT = "strict"
    """Every register with a reference value; boot order, partitions and virtual hardware change it too."""


def learn_preset(
    name: str,
    preset: Preset,
    *,
    pcrs: Mapping[int, bytes],
    events: Iterable[MeasuredEvent],
    facts: BootFacts,
    label: str = "learned",
) -> MeasurementProfile:
    """Return the profile of ``preset`` that a verified machine satisfies.

    ``pcrs``: the values of the verified quote; ``facts``: what its logs prove. Secure Boot is asserted if it is on.
    The posture is what the registers hold, at most *boot*, and *keys* if the logs show no loader.
    Raises `PolicyError` PRESET_UNMET if the preset is not for such a machine, and QUOTE_SELECTION.
    """
    _require_met(preset, facts)
    registers = _registers(preset, facts)
    profile = dataclasses.replace(
        learn_profile(name, pcrs=pcrs, events=events, registers=registers, label=label),
        assertions=Assertions(secure_boot=bool(facts.secure_boot)),
        loader=facts.loader if PROGRAM_REGISTER in registers else None,
    )
    posture = Posture.KEYS if facts.loader is None else least(Posture.BOOT, profile.reach)
    return dataclasses.replace(profile, posture=posture)


def preset_registers(preset: Preset) -> tuple[int, ...]:
    """Return the registers to quote before a profile of ``preset`` can be learned."""
    return STRICT_REGISTERS if preset is Preset.STRICT else READING_REGISTERS


def _registers(preset: Preset, facts: BootFacts) -> tuple[int, ...]:
    loaded = _LOADED[facts.loader]
    return {
        Preset.AUTO: loaded if facts.secure_boot else (FIRMWARE_REGISTER, *loaded),
        Preset.IMAGE: IMAGE_REGISTERS,
        Preset.SECURE_BOOT: (SECURE_BOOT_REGISTER,),
        Preset.STRICT: STRICT_REGISTERS,
    }[preset]


def _require_met(preset: Preset, facts: BootFacts) -> None:
    if preset is Preset.SECURE_BOOT and not facts.secure_boot:
        state = "off" if facts.secure_boot is False else "not proven by its log"
        raise PolicyError(
            f"expected a machine with Secure Boot on for the preset secure-boot, got one where it is {state}",
            reason=Reason.PRESET_UNMET,
        )
    if preset is Preset.SECURE_BOOT and not facts.alone:
        raise PolicyError(
            "expected a machine that starts a signed unified kernel image and nothing else for the preset secure-boot, "
            f"got {_FOUND[facts.loader]}; auto holds PCR {', '.join(map(str, _registers(Preset.AUTO, facts)))} of it",
            reason=Reason.PRESET_UNMET,
        )
    if preset is Preset.IMAGE and facts.loader is not Loader.IMAGE:
        raise PolicyError(
            f"expected a measured unified kernel image for the preset image, got {_FOUND[facts.loader]}; "
            f"auto holds PCR {', '.join(map(str, _registers(Preset.AUTO, facts)))} of it",
            reason=Reason.PRESET_UNMET,
        )
