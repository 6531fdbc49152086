# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A measurement profile: which register values are accepted, and what its evidence says."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from .assertions import GRUB_REGISTER, IMAGE_REGISTER, KERNEL_REGISTER, PROGRAM_REGISTER, Assertions, Loader
from .identity import NAME_DIGITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from .identity import Role

FIRST_RESETTABLE_REGISTER = 16
"""Registers from here on can be reset by software or belong to D-RTM; no profile and no node lock may use them."""

MAX_REFERENCE_EVENTS = 1024
"""Events that a profile has room for; a log may have four times as many, and the API holds 1.5 MiB an object."""


_HOLDING_INITRD = {
    None: (
        {PROGRAM_REGISTER, GRUB_REGISTER, KERNEL_REGISTER},
        {PROGRAM_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER},
    ),
    Loader.GRUB: ({PROGRAM_REGISTER, GRUB_REGISTER, KERNEL_REGISTER},),
    Loader.IMAGE: ({PROGRAM_REGISTER, KERNEL_REGISTER},),
    Loader.KERNEL: ({PROGRAM_REGISTER, KERNEL_REGISTER},),
}
"""Which registers hold programs, kernel, initrd and command line together, by who measured them."""


class Posture(Enum):
    """How far the evidence reaches, the least first; status, verify and README never say more."""

    KEYS = "keys"
    """Who may sign what is booted, and nothing more: initrd or command line are free."""
    BOOT = "boot"
    """Boot programs, kernel, initrd and command line; an offline edit of the root file system is not seen."""
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
class Applicant:
    """Whose boot is judged: the registered role, and the endorsement key that was proven (SHA-256, hex)."""

    role: Role
    ek_sha256: str

    def __str__(self) -> str:
        """Return both for a sentence."""
        return f"the {self.role.value} with the endorsement key {self.ek_sha256[:NAME_DIGITS]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementProfile:
    """A named set of accepted register values with assertions; a profile without registers accepts nobody.

    ``registers``: PCR index to its accepted values; ``reference_events``: the events of the machine that it was learned
    from, used to explain a deviation and never to accept anything. ``loader``: who measures the command line of a
    machine that started the programs of PCR 4; without it no command line counts. ``expires``: from then on it accepts
    nobody; ``retired``: it accepts nobody and is kept to be named.

    ``roles`` and ``machines`` (endorsement keys, SHA-256 in hex) say for whom it counts; empty: for every one.
    """

    name: str
    posture: Posture
    registers: Mapping[int, tuple[AllowedValue, ...]]
    reference_events: tuple[MeasuredEvent, ...] = ()
    assertions: Assertions = field(default_factory=Assertions)
    loader: Loader | None = None
    expires: datetime | None = None
    retired: bool = False
    roles: tuple[Role, ...] = ()
    machines: tuple[str, ...] = ()

    @property
    def accepts_nobody(self) -> bool:
        """Whether the profile is retired, has no register, or a register without a value."""
        return self.retired or not self.registers or not all(self.registers.values())

    @property
    def demanded_registers(self) -> tuple[int, ...]:
        """The registers to quote: those with values, and those that assertions are read from; none once retired."""
        return () if self.retired else tuple(sorted({*self.registers, *self.assertions.registers}))

    @property
    def reach(self) -> Posture:
        """How far evidence can reach that satisfies the registers, whatever ``posture`` says; never *runtime*.

        *boot* takes a value that something was measured into in each register of one row of the table above; *root*
        also a known loader, since the root hash is read from a command line.
        """
        held = {pcr for pcr, allowed in self.registers.items() if all(any(value.digest) for value in allowed)}
        if not any(wanted <= held for wanted in _HOLDING_INITRD[self.loader]):
            return Posture.KEYS
        return Posture.BOOT if self.loader is None else Posture.ROOT

    def counts_for(self, applicant: Applicant | None) -> bool:
        """Whether it may admit ``applicant``; one that is limited counts for nobody of whom nothing is known.

        A machine is known by the very key that it proved now: a second key stands in an object that the site may not
        have signed.
        """
        if applicant is None:
            return not (self.roles or self.machines)
        return applicant.role in (self.roles or (applicant.role,)) and (
            not self.machines or applicant.ek_sha256 in self.machines
        )

    @property
    def limits(self) -> str:
        """For whom it counts, in words."""
        told = [", ".join(role.value for role in self.roles), f"{len(self.machines)} machines" if self.machines else ""]
        return " of ".join(one for one in reversed(told) if one) or "every machine"


def least(*postures: Posture) -> Posture:
    """Return the posture that says least."""
    return min(postures, key=list(Posture).index)


def weaknesses(profile: MeasurementProfile) -> Iterator[str]:
    """Yield in sentences what the profile says and its registers do not hold; nothing for one that accepts nobody."""
    if profile.accepts_nobody:
        return
    name, held = profile.name, ", ".join(map(str, sorted(profile.registers)))
    if least(profile.posture, profile.reach) is not least(profile.posture, Posture.ROOT):
        free = "initrd or command line are free" if profile.reach is Posture.KEYS else "no loader is named"
        yield (
            f"profile {name} says posture {profile.posture.value} and reaches {profile.reach.value}: it holds PCR "
            f"{held}, so {free}; learn it anew (attested.kubernetes.enroll) or let it say {profile.reach.value}"
        )
    asserted = [
        word
        for word, demanded in (
            ("bootOptions", profile.assertions.boot_options is not None),
            ("lockdown", profile.assertions.lockdown is not None),
            ("kernels", bool(profile.assertions.kernels)),
        )
        if demanded
    ]
    if asserted and (profile.loader is None or PROGRAM_REGISTER not in profile.registers):
        yield (
            f"profile {name} asserts {', '.join(asserted)} and accepts nobody by that: what a register says counts "
            f"where PCR {PROGRAM_REGISTER} is held and loader names who measured it"
        )
