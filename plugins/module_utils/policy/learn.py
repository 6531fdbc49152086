# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile from a machine whose evidence was verified."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..reasons import Reason
from .profile import MAX_REFERENCE_EVENTS, AllowedValue, MeasurementProfile, Posture, least

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .profile import MeasuredEvent

DEFAULT_REGISTERS = (0, 4, 7, 9, 11)
"""Firmware, boot programs, Secure Boot, command line and initrd, kernel image; never IMA's 10."""


def learn_profile(
    name: str,
    *,
    pcrs: Mapping[int, bytes],
    events: Iterable[MeasuredEvent],
    registers: Iterable[int] = DEFAULT_REGISTERS,
    label: str = "learned",
) -> MeasurementProfile:
    """Return the profile that allows exactly what one verified quote shows, with its events for explanations.

    ``pcrs``: the values of the verified quote. The posture is ``boot`` at most: values alone show no more.
    Raises `PolicyError` POLICY_EMPTY without registers, QUOTE_SELECTION for one that was not quoted.
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
    """Return the events that a profile has room for: whole registers, since half of one would explain wrongly.

    The registers with the most events are left out first; they are the option ROMs and tables of large servers.
    """
    by_register = Counter(event.pcr for event in events)
    while by_register.total() > MAX_REFERENCE_EVENTS:
        del by_register[max(by_register, key=lambda pcr: by_register[pcr])]
    return tuple(event for event in events if event.pcr in by_register)
