# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Learn a profile: with a preset from one machine, or merged from the profiles of several machines."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, replace
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
    Lockdown,
)
from .events import event_deviations
from .profile import MAX_REFERENCE_EVENTS, AllowedValue, MeasurementProfile, Posture, least

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .assertions import BootFacts
    from .events import EventDeviation
    from .profile import MeasuredEvent


# Presets: named choices of registers and assertions for learning a profile.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A register in which profiles differ: the values with their labels, and the events that differ."""

    pcr: int
    values: tuple[AllowedValue, ...]
    events: tuple[EventDeviation, ...]

    def __str__(self) -> str:
        """Return lines: the values with their labels, then the events that differ."""
        values = [f"PCR {self.pcr}: {value.label} has {value.digest.hex()}" for value in self.values]
        return "\n".join([*values, *(f"  {event}" for event in self.events)])


def differences(profiles: Sequence[MeasurementProfile]) -> tuple[Difference, ...]:
    """Return the registers in which profiles differ, ascending; the events are compared with the first profile's."""
    first, *others = profiles
    found = []
    for pcr in sorted({pcr for profile in profiles for pcr in profile.registers}):
        accepted = [frozenset(value.digest for value in one.registers.get(pcr, ())) for one in profiles]
        if len(set(accepted)) > 1:
            events = (
                deviation
                for other in others
                for deviation in event_deviations(first.reference_events, other.reference_events, [pcr])
            )
            found.append(Difference(pcr=pcr, values=_values(profiles, pcr), events=tuple(dict.fromkeys(events))))
    return tuple(found)


def merge_profiles(name: str, profiles: Sequence[MeasurementProfile]) -> MeasurementProfile:
    """Return the profile that accepts, in each register, the values of all ``profiles``.

    Values mix: a machine with the firmware of one profile and the kernel of another is accepted too. To avoid that,
    keep the profiles separate. The reference events are those of the first profile. Raises `PolicyError`
    PROFILES_UNLIKE if the profiles hold different registers, count for different machines, or one accepts no machine.
    """
    held = {tuple(sorted(one.registers)) for one in profiles}
    limits = {(one.roles, one.machines) for one in profiles}
    empty = [one.name for one in profiles if one.accepts_no_machine]
    loaders = {one.loader for one in profiles}
    if len(held) != 1 or len(limits) != 1 or empty:
        found = "; ".join(f"{one.name} with {sorted(one.registers)} for {one.limits}" for one in profiles) or "none"
        raise PolicyError(
            f"expected profiles of the same registers, for the same machines, that accept some machine, got {found}",
            reason=Reason.PROFILES_UNLIKE,
        )
    return MeasurementProfile(
        name=name,
        posture=least(*(one.posture for one in profiles)),
        registers={pcr: _values(profiles, pcr) for pcr in held.pop()},
        reference_events=profiles[0].reference_events,
        assertions=_common([one.assertions for one in profiles]),
        loader=loaders.pop() if len(loaders) == 1 else None,
        expires=min((one.expires for one in profiles if one.expires), default=None),
        roles=profiles[0].roles,
        machines=profiles[0].machines,
    )


def _values(profiles: Iterable[MeasurementProfile], pcr: int) -> tuple[AllowedValue, ...]:
    """Return every accepted value once, with all its labels."""
    labels: dict[bytes, list[str]] = {}
    for profile in profiles:
        for value in profile.registers.get(pcr, ()):
            known = labels.setdefault(value.digest, [])
            known += [] if value.label in known else [value.label]
    return tuple(AllowedValue(digest, ", ".join(names)[:128]) for digest, names in labels.items())


def _common(every: Sequence[Assertions]) -> Assertions:
    """Return the assertions that all profiles share: a merged profile never refuses what one of its parts accepts."""
    lockdowns = [one.lockdown for one in every if one.lockdown]
    options = [one.boot_options for one in every if one.boot_options is not None]
    weakest = Lockdown.INTEGRITY if Lockdown.INTEGRITY in lockdowns else Lockdown.CONFIDENTIALITY
    components = set.intersection(*(set(one.sbat_minimum) for one in every))
    minimums = {one.firmware_minimum for one in every}
    return Assertions(
        secure_boot=all(one.secure_boot for one in every),
        lockdown=weakest if len(lockdowns) == len(every) else None,
        boot_options=tuple(dict.fromkeys(word for words in options for word in words))
        if len(options) == len(every)
        else None,
        firmware_minimum=minimums.pop() if len(minimums) == 1 else "",
        kernels=tuple(dict.fromkeys(one for part in every for one in part.kernels))
        if all(part.kernels for part in every)
        else (),
        sbat_minimum={name: min(one.sbat_minimum[name] for one in every) for name in sorted(components)},
        source_signers=tuple(dict.fromkeys(one for part in every for one in part.source_signers))
        if all(part.source_signers for part in every)
        else (),
        source_minimum=min(one.source_minimum for one in every),
        node_configs=tuple(dict.fromkeys(one for part in every for one in part.node_configs))
        if all(part.node_configs for part in every)
        else (),
    )
