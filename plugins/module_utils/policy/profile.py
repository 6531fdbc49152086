# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A measurement profile: which register values are accepted, and what its evidence says (design 5, 6.9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from .assertions import Assertions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

FIRST_RESETTABLE_REGISTER = 16
"""Registers from here on can be reset by software or belong to D-RTM; no profile and no node lock may use them."""


class Posture(Enum):
    """How far the evidence reaches; status, verify and README never say more."""

    BOOT = "boot"
    """Firmware to initrd and command line; an offline edit of the root file system is not seen."""
    ROOT = "root"
    """The root file system as well."""
    RUNTIME = "runtime"
    """Every program that runs, by IMA."""


@dataclass(frozen=True, slots=True)
class AllowedValue:
    """One accepted value (SHA-256 bank, 32 bytes) and the label that says what it is, for example a release."""

    digest: bytes
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEvent:
    """One event of a log, for explanation only.

    ``text`` describes it; ``proven`` says that the text's own hash is the digest, so nobody invented it; ``rank``
    orders a list of findings: what a person understands best comes first (0). ``index`` is its place in its log (None
    where no log is at hand), ``kind`` the name of its type, which no digest covers.
    """

    pcr: int
    digest: bytes
    text: str
    proven: bool = False
    rank: int = 9
    index: int | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementProfile:
    """A named set of accepted register values with assertions; a profile without registers accepts nobody.

    ``registers``: PCR index to its accepted values; ``reference_events``: the events of the machine that it was learned
    from, used to explain a deviation and never to accept anything. ``expires``: from then on it accepts nobody;
    ``retired``: it accepts nobody and is kept to be named.
    """

    name: str
    posture: Posture
    registers: Mapping[int, tuple[AllowedValue, ...]]
    reference_events: tuple[MeasuredEvent, ...] = ()
    assertions: Assertions = field(default_factory=Assertions)
    expires: datetime | None = None
    retired: bool = False

    @property
    def accepts_nobody(self) -> bool:
        """Whether the profile is retired, has no register, or a register without a value."""
        return self.retired or not self.registers or not all(self.registers.values())

    @property
    def demanded_registers(self) -> tuple[int, ...]:
        """The registers to quote: those with values, and those that assertions are read from; none once retired."""
        return () if self.retired else tuple(sorted({*self.registers, *self.assertions.registers}))
