# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a node's testimony: the ten steps of `verify_node`, the TLS channel and the node's name. Pure.

A verification proves what one node is at one moment, over this TLS connection. Evidence that a proxy relays, or that
comes over another TLS session with a leaked key of the service, is refused.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..errors import AttestedError, Refusal
from ..evidence.challenge import BindingContext, exchange_digest, new_challenge
from ..evidence.registry import verify_evidence
from ..evidence.verify import verify_machine, verify_node
from ..policy.decision import MeasurementMismatch
from ..policy.in_force import register_selection
from ..reasons import Coarse, Reason
from ..transport.binding import Purpose
from .verification_exchange import Testimony, exchanged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ..core.host import Clock, Random
    from ..evidence.challenge import Challenge, ChallengeRecord, ChallengeRequest
    from ..evidence.verify import Demands, VerifiedMachine, VerifiedNode
    from ..policy.in_force import PolicyInForce


# The result of verifying one node, for people and programs: a row of the fleet report. Pure.


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


_CHANNEL_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What every node is judged by: the policy, and the cluster id (32 bytes)."""

    cluster_id: bytes
    policy: PolicyInForce
    demands: Demands
    clock: Clock
    random: Random

    def challenge(self, request: ChallengeRequest) -> tuple[Challenge, ChallengeRecord]:
        """Return a challenge over the registers that the policy compares; raises as `new_challenge`."""
        selection = register_selection(self.policy.profiles(), lock_register=self.demands.lock_register)
        return new_challenge(request, selection=selection, random=self.random, now=self.clock.now())


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One exchange with one node as the caller saw it, not yet judged.

    ``exporter`` and ``spki_sha256`` are taken from the caller's end of the connection; ``challenge`` is as sent.
    ``purpose``: the purpose that the evidence must have.
    """

    record: ChallengeRecord = field(repr=False)
    challenge: bytes = field(repr=False)
    testimony: Testimony
    exporter: bytes
    spki_sha256: bytes
    now: datetime
    purpose: Purpose = Purpose.VERIFY

    def context(self, question: Question) -> BindingContext:
        """Return the binding context as the caller knows it, without anything that the node reported."""
        return BindingContext(
            purpose=self.purpose,
            cluster_id=question.cluster_id,
            request=exchanged(self.challenge, self.testimony.event_logs),
            exporter=self.exporter,
            spki_sha256=self.spki_sha256,
        )


def judge(received: Received, question: Question, *, node: str) -> VerifiedNode:
    """Return the node of an exchange, judged by the policy of ``question``; raises what `verify_node` raises.

    Raises CHANNEL_NOT_BOUND if the evidence is genuine but made for another connection, as by a proxy, and then
    NODE_NAME_MISMATCH if the machine is enrolled for another node than ``node``.
    """
    try:
        verified = verify_node(
            received.testimony.bound,
            record=received.record,
            context=received.context(question),
            logs=received.testimony.logs(),
            policy=question.policy,
            now=received.now,
            demands=question.demands,
        )
    except Refusal as error:
        if error.reason is Reason.BINDING_MISMATCH and _is_of_another_channel(received, question):
            raise Refusal(
                "expected evidence for this connection, got genuine evidence for another one: "
                "TLS is terminated between this machine and the node",
                reason=Reason.CHANNEL_NOT_BOUND,
            ) from error
        raise
    _require_name(verified.identity.node_name, node)
    return verified


def proven_machine(received: Received, question: Question) -> VerifiedMachine | None:
    """Return what a refused node has proven nevertheless (its TPM, its boot), None if that is nothing."""
    with suppress(AttestedError):
        return _machine(received, question)
    return None


def machine_of(received: Received, question: Question, *, node: str) -> VerifiedMachine:
    """Return the machine of an exchange, proven to be the one enrolled for ``node``; no profile is evaluated.

    Serves plans for a policy that is not in force yet. Raises what `verify_machine` and the policy's ``identity_for``
    raise, and NODE_NAME_MISMATCH.
    """
    machine = _machine(received, question)
    _require_name(question.policy.identity_for(machine.ek_sha256).node_name, node)
    return machine


def _machine(received: Received, question: Question) -> VerifiedMachine:
    return verify_machine(
        received.testimony.bound,
        record=received.record,
        context=received.context(question),
        logs=received.testimony.logs(),
        now=received.now,
        demands=question.demands,
    )


def _require_name(enrolled: str, node: str) -> None:
    if enrolled != node:
        raise Refusal(
            f"expected the TPM of {node}, the machine has the one enrolled for {enrolled}",
            reason=Reason.NODE_NAME_MISMATCH,
        )


def _is_of_another_channel(received: Received, question: Question) -> bool:
    """Return whether the quote is good for the channel that the node reports, which is not this one."""
    testimony = received.testimony
    if (len(testimony.exporter), len(testimony.spki_sha256)) != (_CHANNEL_BYTES, _CHANNEL_BYTES):
        return False
    context = replace(received.context(question), exporter=testimony.exporter, spki_sha256=testimony.spki_sha256)
    digest = exchange_digest(
        received.record.challenge, context, proof=testimony.bound.proof, hpke_public=testimony.bound.hpke_public
    )
    try:
        verify_evidence(testimony.bound.evidence, qualifying_data=digest)
    except AttestedError:
        return False
    return True
