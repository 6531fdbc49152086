# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision: do the quoted values satisfy a profile, and if not, what exactly deviates.

Values and proven facts decide; events in words only explain.
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
    """Which profile accepted the machine; ``labels`` says by which value, register by register.

    ``posture`` is the profile's, or less where the evidence does not reach that far.
    """

    profile: str
    posture: Posture
    labels: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterDeviation:
    """A register with another value than any allowed one; ``got`` is None where it was not quoted."""

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
    """A boot that no profile allows, with what deviates from the nearest one, as objects beside the sentence.

    The reason is PCR_MISMATCH where a register deviates, PROFILE_EXPIRED where nothing does but the date, and else
    that of the first assertion that failed.
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
        """Make the sentence: registers in order, assertions, then events, the most readable first, and the date."""
        lines = [str(deviation) for deviation in (*registers, *assertions, *events)]
        lines += [f"profile {nearest}: expected one in force, it expired at {expired}"] if expired else []
        reason = _reason(registers, assertions)
        told = "; ".join([*lines, f"next: {reason.value.command}"])
        super().__init__(f"expected a boot that a profile allows (nearest: {nearest}), got {told}", reason=reason)
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
    """One profile held against one boot."""

    profile: MeasurementProfile
    registers: tuple[RegisterDeviation, ...]
    assertions: tuple[FailedAssertion, ...]
    expired: str

    @property
    def distance(self) -> tuple[int, int, bool]:
        """How far the boot is from being accepted; zeros mean that it is."""
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
    """Return the first profile, by name, that allows every value and asserts nothing that does not hold.

    ``pcrs`` are the values of the verified quote, ``facts`` what logs that lead to them prove (without them no
    assertion holds), ``now`` the time (without it a profile that expires has expired), ``applicant`` whose boot it is
    (without it a profile that is limited to roles or machines counts for nobody). ``events`` explain a refusal and are
    looked at only then. Raises `PolicyError` POLICY_EMPTY, PROFILE_NOT_FOR_MACHINE where only profiles for others allow
    the boot or none counts, or `MeasurementMismatch` with everything that deviates from the nearest profile that
    counts: fewest registers, then fewest assertions, then not expired.
    """
    usable = sorted((one for one in profiles if not one.accepts_nobody), key=lambda one: one.name)
    if not usable:
        empty = ", ".join(one.name for one in profiles) or "no profile at all"
        raise PolicyError(
            f"expected a profile with values for at least one register, got {empty}", reason=Reason.POLICY_EMPTY
        )
    proven = facts or BootFacts()
    compared = [_compared(profile, pcrs, proven, now) for profile in usable]
    counting = [one for one in compared if one.profile.counts_for(applicant)]
    best = min(counting, key=lambda one: one.distance, default=None)
    others = [one.profile for one in compared if not any(one.distance)]
    if best is None or (others and any(best.distance)):
        raise _not_for(applicant, others or usable)
    if any(best.distance):
        deviating = {deviation.pcr for deviation in best.registers}
        raise MeasurementMismatch(
            nearest=best.profile.name,
            registers=best.registers,
            events=event_deviations(best.profile.reference_events, tuple(events), deviating),
            assertions=best.assertions,
            expired=best.expired,
        )
    nearest = best.profile
    return Verdict(profile=nearest.name, posture=_reached(nearest, proven), labels=_labels(nearest, pcrs))


def _not_for(applicant: Applicant | None, profiles: Sequence[MeasurementProfile]) -> PolicyError:
    told = "; ".join(f"{one.name} counts for {one.limits}" for one in profiles)
    return PolicyError(
        f"expected a profile that counts for {applicant or 'a machine that is not known'}, got {told}",
        reason=Reason.PROFILE_NOT_FOR_MACHINE,
    )


def _compared(
    profile: MeasurementProfile, pcrs: Mapping[int, bytes], facts: BootFacts, now: datetime | None
) -> _Comparison:
    ends = profile.expires
    return _Comparison(
        profile=profile,
        registers=_deviations(profile, pcrs),
        assertions=failed_assertions(
            profile.assertions, _counting(profile, facts), measured_by=_measured_by(profile, facts)
        ),
        expired="" if ends is None or (now is not None and now < ends) else ends.isoformat(),
    )


def _counting(profile: MeasurementProfile, facts: BootFacts) -> BootFacts:
    """Return the facts that count: shim's level where shim (PCR 4) or all that it measured (PCR 7) is held.

    Where it did not run, whoever rules the machine may measure any level behind the keys.
    """
    held = not {PROGRAM_REGISTER, SECURE_BOOT_REGISTER}.isdisjoint(profile.registers)
    return facts if held else replace(facts, sbat_level={})


def _measured_by(profile: MeasurementProfile, facts: BootFacts) -> Loader | None:
    """Return the loader whose measurements count: PCR 4 is held, and the profile says whom it names.

    Without Secure Boot GRUB runs modules that nobody signed, so then the files that it read must be held too.
    """
    if PROGRAM_REGISTER not in profile.registers:
        return None
    signed = profile.loader is not Loader.GRUB or facts.secure_boot is True or KERNEL_REGISTER in profile.registers
    return profile.loader if signed else None


def _reached(profile: MeasurementProfile, facts: BootFacts) -> Posture:
    """Return the profile's posture or less: what the registers hold, and *root* only with a measured root hash.

    Who enforces that hash is the initrd, which a profile holds that reaches *boot*; *runtime* is not judged yet.
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
        if pcrs.get(pcr) not in {value.digest for value in allowed}:
            found.append(RegisterDeviation(pcr=pcr, allowed=allowed, got=pcrs.get(pcr)))
    return tuple(found)


def _labels(profile: MeasurementProfile, pcrs: Mapping[int, bytes]) -> dict[int, str]:
    return {
        pcr: next(value.label for value in allowed if value.digest == pcrs[pcr])
        for pcr, allowed in sorted(profile.registers.items())
    }
