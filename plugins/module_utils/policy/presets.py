# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Presets: which registers and assertions a profile is learned with, so that nobody has to know the numbers."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..reasons import Reason
from .assertions import IMAGE_REGISTER, SECURE_BOOT_REGISTER, Assertions
from .facts import given_options
from .learn import DEFAULT_REGISTERS, learn_profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .facts import BootFacts
    from .profile import MeasuredEvent, MeasurementProfile

STRICT_REGISTERS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14)
"""All that firmware, loaders and systemd measure; IMA's 10 has no reference value, and 15 is the node lock's."""

IMAGE_REGISTERS = (4, 7, 9, 11)

READING_REGISTERS = (0, 4, 7, 8, 9, 11)
"""What is quoted to learn any other preset from, and to read a boot: all that facts and a reading come from."""

_PER_IMAGE = ("roothash=", "usrhash=")


class Preset(Enum):
    """What a profile holds on to."""

    AUTO = "auto"
    """``secure-boot`` where Secure Boot is proven to be on, else firmware, programs, keys, kernel and initrd."""
    IMAGE = "image"
    """One unified kernel image; every kernel update needs a new value, which can be computed ahead."""
    SECURE_BOOT = "secure-boot"
    """Secure Boot's state and keys, and the boot options; lives through updates of firmware, loader and kernel."""
    STRICT = "strict"
    """Every register with a reference value; moves with boot order, partitions and virtual hardware too."""


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

    ``pcrs``: the values of the verified quote; ``facts``: what its logs prove. Secure Boot is asserted where it is on.
    Raises `PolicyError` PRESET_UNMET where the machine is not what the preset is for, QUOTE_SELECTION.
    """
    chosen = preset
    if preset is Preset.AUTO and facts.secure_boot:
        chosen = Preset.SECURE_BOOT
    _require_met(chosen, pcrs, facts)
    profile = learn_profile(name, pcrs=pcrs, events=events, registers=_registers(chosen), label=label)
    if chosen is Preset.AUTO:
        return profile
    options = learned_options(facts) if chosen is Preset.SECURE_BOOT else None
    assertions = Assertions(secure_boot=bool(facts.secure_boot), boot_options=options)
    return dataclasses.replace(profile, assertions=assertions)


def preset_registers(preset: Preset) -> tuple[int, ...]:
    """Return the registers to quote before a profile of ``preset`` can be learned."""
    return STRICT_REGISTERS if preset is Preset.STRICT else READING_REGISTERS


def learned_options(facts: BootFacts) -> tuple[str, ...] | None:
    """Return the options of all proven command lines, hashes of an image as ``name=*``; None where none is proven."""
    if not facts.command_lines:
        return None
    words = [word for line in facts.command_lines for word in given_options(line)]
    general = (f"{word.partition('=')[0]}=*" if word.startswith(_PER_IMAGE) else word for word in words)
    return tuple(dict.fromkeys(general))


def _registers(preset: Preset) -> tuple[int, ...]:
    return {
        Preset.AUTO: DEFAULT_REGISTERS,
        Preset.IMAGE: IMAGE_REGISTERS,
        Preset.SECURE_BOOT: (SECURE_BOOT_REGISTER,),
        Preset.STRICT: STRICT_REGISTERS,
    }[preset]


def _require_met(preset: Preset, pcrs: Mapping[int, bytes], facts: BootFacts) -> None:
    if preset is Preset.SECURE_BOOT and not facts.secure_boot:
        state = "off" if facts.secure_boot is False else "not proven by its log"
        raise PolicyError(
            f"expected a machine with Secure Boot on for the preset secure-boot, got one where it is {state}",
            reason=Reason.PRESET_UNMET,
        )
    if preset is Preset.IMAGE and not any(pcrs.get(IMAGE_REGISTER, b"")):
        raise PolicyError(
            f"expected a measured unified kernel image for the preset image, got PCR {IMAGE_REGISTER} untouched",
            reason=Reason.PRESET_UNMET,
        )
