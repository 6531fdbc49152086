# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of verifying one node, for people and programs: a row of the fleet report. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..policy.decision import MeasurementMismatch
from ..reasons import Coarse, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..errors import AttestedError
    from ..evidence.verify import VerifiedMachine, VerifiedNode


class Outcome(Enum):
    """The outcome of a verification."""

    REFUSED = "refused"
    """The node answered, and its evidence does not satisfy the policy."""
    UNANSWERED = "unanswered"
    """Nothing is known: neither that the node is good nor that it is not."""
    VERIFIED = "verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEvent:
    """One event of a boot; ``proven``: the hash of ``text`` is ``digest`` (hex)."""

    pcr: int
    digest: str
    text: str
    proven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a node is not verified, from the error that was raised."""

    reason: str
    message: str
    hint: str = ""
    command: str = ""
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result for one node at one moment.

    ``over`` is ``service`` or ``ssh``. A refused node also has the fields that its evidence proved. ``registers`` and
    ``labels`` (names of the allowed values) are by register index; digests are hexadecimal.
    """

    node: str
    outcome: Outcome
    over: str
    role: str = ""
    profile: str = ""
    posture: str = ""
    nodelock: str = ""
    ek_sha256: str = ""
    ek_certified: bool = False
    registers: Mapping[int, str] = field(default_factory=dict)
    labels: Mapping[int, str] = field(default_factory=dict)
    events: tuple[ShownEvent, ...] = ()
    trouble: Trouble | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the finding as it appears in the JSON report and in a task's result."""
        trouble = self.trouble
        return {
            "node": self.node,
            "outcome": self.outcome.value,
            "over": self.over,
            "role": self.role,
            "profile": self.profile,
            "posture": self.posture,
            "nodelock": self.nodelock,
            "ek_sha256": self.ek_sha256,
            "ek_certified": self.ek_certified,
            "registers": {str(pcr): value for pcr, value in sorted(self.registers.items())},
            "labels": {str(pcr): value for pcr, value in sorted(self.labels.items())},
            "events": [
                {"pcr": one.pcr, "digest": one.digest, "text": one.text, "proven": one.proven} for one in self.events
            ],
            "trouble": None
            if trouble is None
            else {
                "reason": trouble.reason,
                "message": trouble.message,
                "hint": trouble.hint,
                "command": trouble.command,
                "deviations": list(trouble.deviations),
            },
        }

    @classmethod
    def from_document(cls, body: Mapping[str, Any]) -> Finding:
        """Return the finding of a document that `to_document` made."""
        trouble = body["trouble"]
        return cls(
            **{
                **body,
                "outcome": Outcome(body["outcome"]),
                "registers": {int(pcr): value for pcr, value in body["registers"].items()},
                "labels": {int(pcr): value for pcr, value in body["labels"].items()},
                "events": tuple(ShownEvent(**one) for one in body["events"]),
                "trouble": Trouble(**{**trouble, "deviations": tuple(trouble["deviations"])}) if trouble else None,
            }
        )


def found(node: VerifiedNode, *, over: str) -> Finding:
    """Return the finding for a node that was verified."""
    verdict = node.verdict
    return Finding(
        node=node.identity.node_name,
        outcome=Outcome.VERIFIED,
        over=over,
        role=node.identity.role.value,
        profile=verdict.profile,
        posture=verdict.posture.value,
        labels=dict(verdict.labels),
        **_proven(node.machine),
    )


def not_found(name: str, error: AttestedError, *, over: str, machine: VerifiedMachine | None = None) -> Finding:
    """Return the finding for a node that was not verified, with what its evidence proved nevertheless."""
    details: tuple[str, ...] = ()
    if isinstance(error, MeasurementMismatch):
        details = tuple(str(one) for one in (*error.events, *error.registers))
    return Finding(
        node=name,
        outcome=outcome_of(error.reason),
        over=over,
        trouble=Trouble(
            reason=error.code,
            message=error.message,
            hint=error.hint,
            command=error.reason.value.command,
            deviations=details,
        ),
        **(_proven(machine) if machine else {}),
    )


def outcome_of(reason: Reason) -> Outcome:
    """Return REFUSED if ``reason`` is a refusal, else UNANSWERED."""
    return Outcome.REFUSED if reason.value.coarse is Coarse.REFUSED else Outcome.UNANSWERED


def _proven(machine: VerifiedMachine) -> dict[str, Any]:
    return {
        "ek_sha256": machine.ek_sha256,
        "ek_certified": machine.ek_certified,
        "nodelock": machine.lock.state.value,
        "registers": {pcr: value.hex() for pcr, value in machine.quote.pcrs.items()},
        "events": tuple(
            ShownEvent(pcr=one.pcr, digest=one.digest.hex(), text=one.text, proven=one.proven) for one in machine.events
        ),
    }


def found_in_result(name: str, result: Mapping[str, Any], *, over: str) -> Finding:
    """Return the finding in the result of the module ``attestation_verification`` for the node ``name``.

    A failed result holds no finding; its outcome comes from its reason, or from MODULE_FAILED if it has none.
    """
    if result.get("finding"):
        return Finding.from_document(result["finding"])
    code = str(result.get("reason", ""))
    reason = Reason.__members__.get(code, Reason.MODULE_FAILED)
    message = str(result.get("msg") or "the node has no result")
    return Finding(
        node=name,
        outcome=outcome_of(reason),
        over=over,
        trouble=Trouble(
            reason=reason.name,
            message=message,
            hint=str(result.get("hint") or reason.value.hint),
            command=reason.value.command,
        ),
    )
