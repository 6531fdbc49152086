# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A measurement profile: the accepted register values, the assertions, and how far its evidence reaches."""

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
"""Registers from this one up can be reset by software or belong to D-RTM; profiles and node lock must not use them."""

MAX_REFERENCE_EVENTS = 1024
"""The most events of a profile; a log may have four times as many, and the API limits an object to 1.5 MiB."""


_HOLDING_INITRD = {
    None: (
        {PROGRAM_REGISTER, GRUB_REGISTER, KERNEL_REGISTER},
        {PROGRAM_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER},
    ),
    Loader.GRUB: ({PROGRAM_REGISTER, GRUB_REGISTER, KERNEL_REGISTER},),
    Loader.IMAGE: ({PROGRAM_REGISTER, KERNEL_REGISTER},),
    Loader.KERNEL: ({PROGRAM_REGISTER, KERNEL_REGISTER},),
}
"""The sets of registers that hold programs, kernel, initrd and command line together, by the measuring loader."""


class Posture(Enum):
    """How far the evidence reaches, beginning with the lowest posture; status, verify and README never claim more."""

    KEYS = "keys"
    """Only the keys that may sign the booted programs: initrd or command line may be anything."""
    BOOT = "boot"
    """Boot programs, kernel, initrd and command line; an offline edit of the root file system is not detected."""
    ROOT = "root"
    """The root file system too."""
    RUNTIME = "runtime"
    """Every program that runs, by IMA."""


@dataclass(frozen=True, slots=True)
class AllowedValue:
    """One accepted value (SHA-256 bank, 32 bytes) and its label, for example a release."""

    digest: bytes
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEvent:
    """One event of a log, for explanation only.

    ``text`` describes the event; ``proven``: the text's own hash is the digest. ``rank`` orders a list of findings, the
    most readable first (0). ``index`` is the position in the log (None without a log), ``kind`` the name of the event's
    type, which no digest covers.
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
    """The machine whose boot is compared: its registered role, and its proven endorsement key (SHA-256, hex)."""

    role: Role
    ek_sha256: str

    def __str__(self) -> str:
        """Return role and key as part of a sentence."""
        return f"the {self.role.value} with the endorsement key {self.ek_sha256[:NAME_DIGITS]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementProfile:
    """A named set of accepted register values with assertions; a profile without registers accepts no machine.

    ``registers``: PCR index to its accepted values. ``reference_events``: the events of the machine that the profile
    was learned from; they explain a deviation and never accept anything. ``loader``: the program that measures the
    command line if PCR 4 has an accepted value; without it no command line counts. ``expires``: from this time on the
    profile accepts no machine. ``retired``: the profile accepts no machine, and is kept so that refusals can name it.

    ``roles`` and ``machines`` (endorsement keys, SHA-256 in hex) limit the machines that it counts for; empty: all.
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
    def accepts_no_machine(self) -> bool:
        """Whether the profile is retired, has no register, or a register without a value."""
        return self.retired or not self.registers or not all(self.registers.values())

    @property
    def demanded_registers(self) -> tuple[int, ...]:
        """The registers to quote: those with values and those of the assertions; none if the profile is retired."""
        return () if self.retired else tuple(sorted({*self.registers, *self.assertions.registers}))

    @property
    def reach(self) -> Posture:
        """How far evidence that satisfies the registers can reach, whatever ``posture`` claims; never *runtime*.

        *boot* needs values other than zero in all registers of one set of the table above. *root* also needs a known
        loader, since the root hash is read from a command line.
        """
        held = {pcr for pcr, allowed in self.registers.items() if all(any(value.digest) for value in allowed)}
        if not any(wanted <= held for wanted in _HOLDING_INITRD[self.loader]):
            return Posture.KEYS
        return Posture.BOOT if self.loader is None else Posture.ROOT

    def counts_for(self, applicant: Applicant | None) -> bool:
        """Whether the profile counts for ``applicant``; a limited profile does not count for an unknown machine (None).

        Only the key that the machine proved now counts: its second key comes from an object that the site may not have
        signed.
        """
        if applicant is None:
            return not (self.roles or self.machines)
        return applicant.role in (self.roles or (applicant.role,)) and (
            not self.machines or applicant.ek_sha256 in self.machines
        )

    @property
    def limits(self) -> str:
        """The machines that the profile counts for, in words."""
        roles = ", ".join(role.value for role in self.roles)
        machines = f"{len(self.machines)} machines" if self.machines else ""
        return " of ".join(one for one in (machines, roles) if one) or "every machine"


def least(*postures: Posture) -> Posture:
    """Return the lowest of the postures."""
    return min(postures, key=list(Posture).index)


def weaknesses(profile: MeasurementProfile) -> Iterator[str]:
    """Yield a sentence for each claim that the registers do not support; nothing if the profile accepts no machine."""
    if profile.accepts_no_machine:
        return
    name, held = profile.name, ", ".join(map(str, sorted(profile.registers)))
    if least(profile.posture, profile.reach) is not least(profile.posture, Posture.ROOT):
        gap = "initrd or command line are free" if profile.reach is Posture.KEYS else "no loader is named"
        yield (
            f"profile {name} says posture {profile.posture.value} and reaches {profile.reach.value}: it holds PCR "
            f"{held}, so {gap}; learn it again (attested.kubernetes.enroll) or let it say {profile.reach.value}"
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
            f"profile {name} asserts {', '.join(asserted)} and so accepts no machine: such assertions hold only if "
            f"PCR {PROGRAM_REGISTER} is held and loader names the program that measured"
        )
