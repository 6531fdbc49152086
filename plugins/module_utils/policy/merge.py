# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the profiles of several machines, and merge them into one profile that accepts each machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..reasons import Reason
from .assertions import Assertions, Lockdown
from .events import event_deviations
from .profile import AllowedValue, MeasurementProfile, least

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .events import EventDeviation


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
