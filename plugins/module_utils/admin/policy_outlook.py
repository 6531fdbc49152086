# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predict whether profiles that are not in force yet would admit a node, with the code of the admission. Pure.

The identity's status holds the register values that were judged last, and no event log. So the assertions of a profile,
and registers that were not quoted then, cannot be judged from it. An unknown is neither a pass nor a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..policy.assertions import PROGRAM_REGISTER, Assertions
from ..policy.decision import MeasurementMismatch, decide
from ..policy.identity import Role
from ..policy.profile import Applicant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ..policy.assertions import BootFacts
    from ..policy.profile import MeasurementProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """A node by its identity's status: the profile that allowed it last, and the register values that were judged.

    ``facts`` are proven by the logs of fresh evidence, and ``registers`` come from that evidence then; None: there is
    no log. ``evidence_missing`` says why requested fresh evidence is missing. ``ek_alias``: as in `NodeIdentity`.
    """

    node_name: str
    ek_sha256: str
    revoked: bool
    phase: str
    profile: str
    registers: Mapping[int, bytes]
    facts: BootFacts | None = None
    evidence_missing: str = ""
    ek_alias: str = ""
    role: Role = Role.WORKER

    @property
    def keys(self) -> tuple[str, ...]:
        """Its endorsement keys."""
        return (self.ek_sha256, self.ek_alias) if self.ek_alias else (self.ek_sha256,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A node that the next policy would refuse in its last attested state, and what deviates."""

    node_name: str
    profile: str
    why: str = ""

    def __str__(self) -> str:
        """Return a sentence."""
        why = f" ({self.why})" if self.why else ""
        return f"{self.node_name} would fail: it was attested as {self.profile or 'nothing'} last{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A node for which it is not known whether the next policy refuses it."""

    node_name: str
    why: str

    def __str__(self) -> str:
        """Return a sentence."""
        return f"{self.node_name}: not known whether it would fail, {self.why}"


def outlook(node: LastSeen, profiles: Sequence[MeasurementProfile], *, now: datetime) -> Failing | Unknown | None:
    """Return the outcome of ``node`` under ``profiles``, those that would be in force for it; None: it is admitted.

    1. A profile whose demands can all be judged admits it.
    2. A profile with demands that cannot be judged may admit it: its other demands are met.
    3. No profile can admit it.
    """
    usable = [one for one in profiles if not one.accepts_no_machine]
    if _refusal(node, [one for one in usable if _missing(one, node) is None], now) is None:  # 1
        return None
    for profile in usable:
        missing = _missing(profile, node)
        if missing is not None and _might(profile, node, now):  # 2
            evidence_missing = f"; {node.evidence_missing}" if node.evidence_missing else ""
            return Unknown(node_name=node.node_name, why=f"{profile.name} asks for {missing}{evidence_missing}")
    refusal = _refusal(node, [_known_part(one, node) for one in usable], now)  # 3
    return Failing(node_name=node.node_name, profile=node.profile, why=_deviating(refusal))


def _missing(profile: MeasurementProfile, node: LastSeen) -> str | None:
    """Return the demands of the profile that cannot be judged for the node, None if all can."""
    values = [str(pcr) for pcr in sorted(profile.registers) if pcr not in node.registers]
    if values:
        return f"PCR {', '.join(values)}, of which no value is at hand"
    if node.facts is None and profile.assertions != Assertions():
        return "what an event log proves, and none is at hand"
    return None


def _might(profile: MeasurementProfile, node: LastSeen, now: datetime) -> bool:
    part = _known_part(profile, node)
    return not part.registers or _refusal(node, [part], now) is None


def _known_part(profile: MeasurementProfile, node: LastSeen) -> MeasurementProfile:
    """Return the part of the profile that can be judged for the node; if it is less, its result alone is no answer.

    The register of the programs shows which program measured: without its value no assertion can be judged.
    """
    unjudged = node.facts is None or (PROGRAM_REGISTER in profile.registers and PROGRAM_REGISTER not in node.registers)
    return replace(
        profile,
        registers={pcr: values for pcr, values in profile.registers.items() if pcr in node.registers},
        assertions=Assertions() if unjudged else profile.assertions,
    )


def _refusal(node: LastSeen, profiles: Sequence[MeasurementProfile], now: datetime) -> PolicyError | None:
    """Return why the admission would refuse, None if it would not."""
    try:
        applicant = Applicant(role=node.role, ek_sha256=node.ek_sha256)
        decide(profiles, node.registers, (), facts=node.facts, now=now, applicant=applicant)
    except PolicyError as error:
        return error
    return None


def _deviating(refusal: PolicyError | None) -> str:
    if not isinstance(refusal, MeasurementMismatch):
        return "no profile is in force for it"
    registers = [f"PCR {one.pcr}" for one in refusal.registers]
    found = [*registers, *(f"{one.reason.name}: {one}" for one in refusal.assertions)] or [refusal.code]
    return f"nearest {refusal.nearest}: {', '.join(found)}"
