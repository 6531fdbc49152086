# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What verification yields. Nobody else can make these: to hold one is to have checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..policy import Role
from ..reasons import Reason
from ..sealing import seal
from .eventlog import boot_facts, describe, read_boot

if TYPE_CHECKING:
    from ..atls import Purpose
    from ..policy import BootFacts, MeasuredEvent, NodeIdentity, Verdict
    from ..system import Random
    from .ek_certificate import CertifiedKey
    from .eventlog import BootLine, FirmwareLog, LockReading, UserspaceRecord
    from .tpm2 import VerifiedQuote


class Proof:
    """Given out by `verify` alone; a verified object made without it is an error of the programmer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BootLogs:
    """Logs that lead to the quoted registers; ``command_line`` is a hint that `describe` believes by its hash only."""

    firmware: FirmwareLog
    userspace: tuple[UserspaceRecord, ...]
    command_line: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedMachine:
    """A TPM that answered a challenge, and what it booted; not yet a node, and judged by no profile.

    ``ek_sha256``: 64 hex digits, the machine's name. ``binding``: B, 32 bytes. ``hpke_public``: the one-time key that
    the quote names. ``certified``: the chip and the root of its certificate, None where no
    roots are configured.
    """

    proof: Proof = field(repr=False)
    purpose: Purpose
    ek_sha256: str
    quote: VerifiedQuote
    boot: BootLogs
    lock: LockReading
    certified: CertifiedKey | None
    binding: bytes
    hpke_public: bytes
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse to be made by hand."""
        _require_proof(self.proof)

    @property
    def ek_certified(self) -> bool:
        """Whether a chain to a configured root was checked."""
        return self.certified is not None

    @property
    def events(self) -> tuple[MeasuredEvent, ...]:
        """What was measured, in words: made anew at each call, since most machines need no explanation."""
        return describe(self.boot.firmware, self.boot.userspace, command_line=self.boot.command_line)

    def read(self) -> tuple[BootLine, ...]:
        """Return the boot as a person reads it; what stands in registers that were not quoted is left out."""
        lines = read_boot(self.boot.firmware, self.boot.userspace, command_line=self.boot.command_line)
        return tuple(line for line in lines if line.pcr in self.quote.pcrs)

    @property
    def facts(self) -> BootFacts:
        """What the logs prove, of the quoted registers alone."""
        return boot_facts(
            self.boot.firmware,
            quoted=self.quote.pcrs.keys(),
            command_line=self.boot.command_line,
            source=self.lock.source,
        )

    def seal(self, plaintext: bytes, *, random: Random | None = None) -> bytes:
        """Return ``plaintext`` sealed to this machine, in the state that was judged, for this exchange."""
        return seal(plaintext, secret=self.secret, binding=self.binding, recipient=self.hpke_public, random=random)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedNode:
    """A machine with an approved identity that booted what a profile allows."""

    proof: Proof = field(repr=False)
    machine: VerifiedMachine
    identity: NodeIdentity
    verdict: Verdict

    def __post_init__(self) -> None:
        """Refuse to be made by hand."""
        _require_proof(self.proof)

    def require_control_plane(self) -> None:
        """Raise ROLE_NOT_REGISTERED for a node of another role: what control planes share is not for it."""
        if self.identity.role is not Role.CONTROL_PLANE:
            raise Refusal(
                f"expected a control plane, the identity of {self.identity.node_name} says {self.identity.role.value}",
                reason=Reason.ROLE_NOT_REGISTERED,
            )


def _require_proof(proof: object) -> None:
    if not isinstance(proof, Proof):
        raise TypeError("a verified object is made by verification alone")
