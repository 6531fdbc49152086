# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision: do the quoted values satisfy a profile, and if not, what exactly deviates. Values alone decide."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .profile import MeasuredEvent, MeasurementProfile, Posture

_UNNAMED_RANK = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which profile accepted the machine; ``labels`` says by which value, register by register."""

    profile: str
    posture: Posture
    labels: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterDeviation:
    """A register with another value than any allowed one; ``got`` is None where it was not quoted."""

    pcr: int
    expected: tuple[bytes, ...]
    got: bytes | None

    def __str__(self) -> str:
        """Return the deviation as a clause."""
        got = "not quoted" if self.got is None else f"got {self.got.hex()}"
        return f"PCR {self.pcr}: expected {' or '.join(value.hex() for value in self.expected)}, {got}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDeviation:
    """An event that differs from the reference; ``expected`` or ``got`` is None where the other has no counterpart."""

    expected: MeasuredEvent | None
    got: MeasuredEvent | None

    @property
    def pcr(self) -> int:
        """The register of the event."""
        return next(event.pcr for event in (self.got, self.expected) if event is not None)

    @property
    def rank(self) -> int:
        """What sorts a list of deviations: the better a person understands it, the smaller."""
        return min(event.rank if event else _UNNAMED_RANK for event in (self.expected, self.got))

    def __str__(self) -> str:
        """Return the deviation as a clause, with digests where the words are the same."""
        if self.expected is None:
            return f"PCR {self.pcr} event: expected none, got {_told(self.got)}"
        if self.got is None:
            return f"PCR {self.pcr} event: expected {_told(self.expected)}, got none"
        if self.expected.text == self.got.text:
            change = f"expected {self.expected.digest.hex()}, got {self.got.digest.hex()}"
            return f"PCR {self.pcr} event {_told(self.got)}: {change}"
        return f"PCR {self.pcr} event: expected {_told(self.expected)}, got {_told(self.got)}"


class MeasurementMismatch(PolicyError):
    """PCR_MISMATCH with what deviates from the nearest profile, as objects beside the sentence."""

    def __init__(
        self, *, nearest: str, registers: tuple[RegisterDeviation, ...], events: tuple[EventDeviation, ...]
    ) -> None:
        """Make the sentence: registers in order, then events, the most readable first."""
        lines = [str(deviation) for deviation in (*registers, *events)]
        message = f"expected a boot that a profile allows (nearest: {nearest}), got {'; '.join(lines)}"
        super().__init__(message, reason=Reason.PCR_MISMATCH)
        self.nearest = nearest
        self.registers = registers
        self.events = events


def decide(
    profiles: Sequence[MeasurementProfile], pcrs: Mapping[int, bytes], events: Iterable[MeasuredEvent]
) -> Verdict:
    """Return the first profile, by name, that allows every value; ``pcrs`` are the values of the verified quote.

    ``events`` explain a refusal and are looked at only then. Raises `PolicyError` POLICY_EMPTY, or PCR_MISMATCH as
    `MeasurementMismatch` with every deviating register and event against the nearest profile (fewest deviating
    registers).
    """
    usable = sorted((one for one in profiles if not one.accepts_nobody), key=lambda one: one.name)
    if not usable:
        empty = ", ".join(one.name for one in profiles) or "no profile at all"
        raise PolicyError(
            f"expected a profile with values for at least one register, got {empty}", reason=Reason.POLICY_EMPTY
        )
    compared = [(profile, _deviations(profile, pcrs)) for profile in usable]
    nearest, deviations = min(compared, key=lambda pair: len(pair[1]))
    if deviations:
        deviating = {deviation.pcr for deviation in deviations}
        raise MeasurementMismatch(
            nearest=nearest.name,
            registers=deviations,
            events=_event_deviations(nearest.reference_events, tuple(events), deviating),
        )
    return Verdict(profile=nearest.name, posture=nearest.posture, labels=_labels(nearest, pcrs))


def _deviations(profile: MeasurementProfile, pcrs: Mapping[int, bytes]) -> tuple[RegisterDeviation, ...]:
    found = []
    for pcr, allowed in sorted(profile.registers.items()):
        expected = tuple(value.digest for value in allowed)
        if pcrs.get(pcr) not in expected:
            found.append(RegisterDeviation(pcr=pcr, expected=expected, got=pcrs.get(pcr)))
    return tuple(found)


def _labels(profile: MeasurementProfile, pcrs: Mapping[int, bytes]) -> dict[int, str]:
    return {
        pcr: next(value.label for value in allowed if value.digest == pcrs[pcr])
        for pcr, allowed in sorted(profile.registers.items())
    }


def _event_deviations(
    reference: Sequence[MeasuredEvent], events: Sequence[MeasuredEvent], pcrs: Iterable[int]
) -> tuple[EventDeviation, ...]:
    """Return what differs in the registers ``pcrs``; without reference events there is nothing to compare with."""
    found: list[EventDeviation] = []
    for pcr in sorted(pcrs):
        expected = [event for event in reference if event.pcr == pcr]
        if expected:
            found += _aligned(expected, [event for event in events if event.pcr == pcr])
    return tuple(sorted(found, key=lambda deviation: deviation.rank))


def _aligned(expected: list[MeasuredEvent], got: list[MeasuredEvent]) -> list[EventDeviation]:
    """Pair the events of one register by their digests, and return the pairs that differ."""
    matcher = difflib.SequenceMatcher(
        None, [event.digest for event in expected], [event.digest for event in got], autojunk=False
    )
    return [
        EventDeviation(expected=old, got=new)
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
        for old, new in zip_longest(expected[a:b], got[c:d])
    ]


def _told(event: MeasuredEvent | None) -> str:
    return repr(event.text) if event else "none"
