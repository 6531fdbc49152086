# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether the quoted values satisfy a profile, and list what deviates if they do not.

Values and proven facts decide; the events only explain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..reasons import Reason
from .assertions import (
    KERNEL_REGISTER,
    PROGRAM_REGISTER,
    SECURE_BOOT_REGISTER,
    BootFacts,
    FailedAssertion,
    Loader,
    boot_options,
    failed_assertions,
)
from .events import event_deviations
from .profile import Posture, least

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from .events import EventDeviation
    from .profile import AllowedValue, Applicant, MeasuredEvent, MeasurementProfile

_ROOT_HASH = "roothash="


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The profile that accepted the machine; ``labels`` has the label of the accepted value for each register.

    ``posture`` is that of the profile, or less if the evidence does not reach that far.
    """

    profile: str
    posture: Posture
    labels: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterDeviation:
    """A register whose value is not allowed; ``got`` is None if the register was not quoted."""

    pcr: int
    allowed: tuple[AllowedValue, ...]
    got: bytes | None

    @property
    def expected(self) -> tuple[bytes, ...]:
        """The accepted values without their labels."""
        return tuple(value.digest for value in self.allowed)

    def __str__(self) -> str:
        """Return the deviation as a clause."""
        got = "not quoted" if self.got is None else f"got {self.got.hex()}"
        wanted = " or ".join(f"{value.digest.hex()} ({value.label})" for value in self.allowed)
        return f"PCR {self.pcr}: expected {wanted}, {got}"


class MeasurementMismatch(PolicyError):
    """A boot that no profile allows, with the deviations from the nearest profile as objects and as message.

    The reason is PCR_MISMATCH if a register deviates, else that of the first failed assertion, else PROFILE_EXPIRED.
    """

    def __init__(
        self,
        *,
        nearest: str,
        registers: tuple[RegisterDeviation, ...] = (),
        events: tuple[EventDeviation, ...] = (),
        assertions: tuple[FailedAssertion, ...] = (),
        expired: str = "",
    ) -> None:
        """Build the message: registers in order, assertions, events with the most readable first, then the date."""
        lines = [str(deviation) for deviation in (*registers, *assertions, *events)]
        lines += [f"profile {nearest}: expected one in force, it expired at {expired}"] if expired else []
        reason = _reason(registers, assertions)
        found = "; ".join([*lines, f"next: {reason.value.command}"])
        super().__init__(f"expected a boot that a profile allows (nearest: {nearest}), got {found}", reason=reason)
        self.nearest = nearest
        self.registers = registers
        self.events = events
        self.assertions = assertions


def _reason(registers: tuple[RegisterDeviation, ...], assertions: tuple[FailedAssertion, ...]) -> Reason:
    if registers:
        return Reason.PCR_MISMATCH
    return assertions[0].reason if assertions else Reason.PROFILE_EXPIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """The comparison of one profile with one boot."""

    profile: MeasurementProfile
    registers: tuple[RegisterDeviation, ...]
    assertions: tuple[FailedAssertion, ...]
    expired: str

    @property
    def distance(self) -> tuple[int, int, bool]:
        """The numbers of failed registers and assertions, and whether the profile expired; zeros mean accepted."""
        return len(self.registers), len(self.assertions), bool(self.expired)


def decide(
    profiles: Sequence[MeasurementProfile],
    pcrs: Mapping[int, bytes],
    events: Iterable[MeasuredEvent],
    *,
    facts: BootFacts | None = None,
    now: datetime | None = None,
    applicant: Applicant | None = None,
) -> Verdict:
    """Return the verdict of the first profile, by name, that allows all values and whose assertions hold.

    ``pcrs`` are the values of the verified quote, ``facts`` what the logs that lead to them prove (without them no
    assertion holds). ``now`` is the time (without it every profile with an end has expired). ``applicant`` is the
    machine (without it no profile counts that is limited to roles or machines). ``events`` explain a refusal and are
    read only for it.

    Raises `PolicyError` POLICY_EMPTY; PROFILE_NOT_FOR_MACHINE if no profile counts for this machine, or only profiles
    for others allow the boot; else `MeasurementMismatch` with all deviations from the nearest profile that counts:
    fewest registers, then fewest assertions, then not expired.
    """
    usable = sorted((one for one in profiles if not one.accepts_no_machine), key=lambda one: one.name)
    if not usable:
        empty = ", ".join(one.name for one in profiles) or "no profile at all"
        raise PolicyError(
            f"expected a profile with values for at least one register, got {empty}", reason=Reason.POLICY_EMPTY
        )
    proven = facts or BootFacts()
    for profile in usable:
        if profile.counts_for(applicant) and _accepts(profile, pcrs, proven, now):
            return Verdict(profile=profile.name, posture=_reached(profile, proven), labels=_labels(profile, pcrs))
    raise _refusal([_compared(profile, pcrs, proven, now) for profile in usable], tuple(events), applicant)


def _accepts(profile: MeasurementProfile, pcrs: Mapping[int, bytes], facts: BootFacts, now: datetime | None) -> bool:
    """Return whether nothing deviates, without a list of deviations: one ticket asks this of each profile in force."""
    held = all(_is_allowed(pcrs.get(pcr), allowed) for pcr, allowed in profile.registers.items())
    return held and not _expired(profile, now) and not _failed(profile, facts)


def _refusal(
    compared: Sequence[_Comparison], events: tuple[MeasuredEvent, ...], applicant: Applicant | None
) -> PolicyError:
    """Return why no profile of ``compared`` accepts the boot."""
    others = [one.profile for one in compared if not any(one.distance)]
    counting = [one for one in compared if one.profile.counts_for(applicant)]
    if others or not counting:
        return _not_for(applicant, others or [one.profile for one in compared])
    best = min(counting, key=lambda one: one.distance)
    deviating = {deviation.pcr for deviation in best.registers}
    return MeasurementMismatch(
        nearest=best.profile.name,
        registers=best.registers,
        events=event_deviations(best.profile.reference_events, events, deviating),
        assertions=best.assertions,
        expired=best.expired,
    )


def _not_for(applicant: Applicant | None, profiles: Sequence[MeasurementProfile]) -> PolicyError:
    limits = "; ".join(f"{one.name} counts for {one.limits}" for one in profiles)
    return PolicyError(
        f"expected a profile that counts for {applicant or 'an unknown machine'}, got {limits}",
        reason=Reason.PROFILE_NOT_FOR_MACHINE,
    )


def _compared(
    profile: MeasurementProfile, pcrs: Mapping[int, bytes], facts: BootFacts, now: datetime | None
) -> _Comparison:
    return _Comparison(
        profile=profile,
        registers=_deviations(profile, pcrs),
        assertions=_failed(profile, facts),
        expired=_expired(profile, now),
    )


def _expired(profile: MeasurementProfile, now: datetime | None) -> str:
    """Return the end of an expired profile, or an empty string; without a time every profile with an end is expired."""
    ends = profile.expires
    return "" if ends is None or (now is not None and now < ends) else ends.isoformat()


def _failed(profile: MeasurementProfile, facts: BootFacts) -> tuple[FailedAssertion, ...]:
    return failed_assertions(profile.assertions, _counting(profile, facts), measured_by=_measured_by(profile, facts))


def _counting(profile: MeasurementProfile, facts: BootFacts) -> BootFacts:
    """Return the facts that count: shim's level only if the profile holds PCR 4 (shim) or 7 (its measurements).

    If shim did not run, any root user of the machine can extend any level after the keys.
    """
    held = not {PROGRAM_REGISTER, SECURE_BOOT_REGISTER}.isdisjoint(profile.registers)
    return facts if held else replace(facts, sbat_level={})


def _measured_by(profile: MeasurementProfile, facts: BootFacts) -> Loader | None:
    """Return the loader whose measurements count: the profile must hold PCR 4 and name the loader.

    Without Secure Boot GRUB runs unsigned modules, so the profile must then hold the files that GRUB reads too.
    """
    if PROGRAM_REGISTER not in profile.registers:
        return None
    signed = profile.loader is not Loader.GRUB or facts.secure_boot is True or KERNEL_REGISTER in profile.registers
    return profile.loader if signed else None


def _reached(profile: MeasurementProfile, facts: BootFacts) -> Posture:
    """Return the profile's posture, or less if its registers do not reach that far; *root* needs a measured root hash.

    The initrd enforces that hash, and a profile that reaches *boot* holds the initrd. *runtime* is not supported yet.
    """
    reached = least(profile.posture, profile.reach)
    if reached is not Posture.ROOT:
        return reached
    lines = facts.lines_by(_measured_by(profile, facts))
    hashed = [any(word.startswith(_ROOT_HASH) for word in boot_options(line)) for line in lines]
    return Posture.ROOT if hashed and all(hashed) else Posture.BOOT


def _deviations(profile: MeasurementProfile, pcrs: Mapping[int, bytes]) -> tuple[RegisterDeviation, ...]:
    found = []
    for pcr, allowed in sorted(profile.registers.items()):
        if not _is_allowed(pcrs.get(pcr), allowed):
            found.append(RegisterDeviation(pcr=pcr, allowed=allowed, got=pcrs.get(pcr)))
    return tuple(found)


def _is_allowed(value: bytes | None, allowed: tuple[AllowedValue, ...]) -> bool:
    return any(value == one.digest for one in allowed)


def _labels(profile: MeasurementProfile, pcrs: Mapping[int, bytes]) -> dict[int, str]:
    return {
        pcr: next(value.label for value in allowed if value.digest == pcrs[pcr])
        for pcr, allowed in sorted(profile.registers.items())
    }
