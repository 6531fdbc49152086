# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The caller's judgement of what a node testified: the ten steps, and which kind of wrong channel it was. Pure.

A verification proves what one node is at one moment, over this very TLS connection: somebody in between who ends TLS
(or a leaked key of the service, with another TLS session) is refused.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..errors import AttestedError, Refusal
from ..evidence.challenge import BindingContext, exchange_digest, new_challenge
from ..evidence.registry import verify_evidence
from ..evidence.verify import verify_machine, verify_node
from ..policy.in_force import register_selection
from ..reasons import Reason
from ..transport.binding import Purpose
from .verification_exchange import Testimony, exchanged

if TYPE_CHECKING:
    from datetime import datetime

    from ..core.host import Clock, Random
    from ..evidence.challenge import Challenge, ChallengeRecord, ChallengeRequest
    from ..evidence.verify import Demands, VerifiedMachine, VerifiedNode
    from ..policy.in_force import PolicyInForce

_CHANNEL_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of every node: by whose policy, for which cluster (32 bytes)."""

    cluster_id: bytes
    policy: PolicyInForce
    demands: Demands
    clock: Clock
    random: Random

    def challenge(self, request: ChallengeRequest) -> tuple[Challenge, ChallengeRecord]:
        """Return a challenge over the registers that the policy looks at; raises as `new_challenge`."""
        selection = register_selection(self.policy.profiles(), lock_register=self.demands.lock_register)
        return new_challenge(request, selection=selection, random=self.random, now=self.clock.now())


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One exchange with one node as this side saw it, not yet judged.

    ``exporter`` and ``spki_sha256``: of this side's own end of the connection; ``challenge`` as it was sent.
    ``purpose``: what the evidence was asked for.
    """

    record: ChallengeRecord = field(repr=False)
    challenge: bytes = field(repr=False)
    testimony: Testimony
    exporter: bytes
    spki_sha256: bytes
    now: datetime
    purpose: Purpose = Purpose.VERIFY

    def context(self, question: Question) -> BindingContext:
        """Return what this side knows of the exchange by itself."""
        return BindingContext(
            purpose=self.purpose,
            cluster_id=question.cluster_id,
            request=exchanged(self.challenge, self.testimony.event_logs),
            exporter=self.exporter,
            spki_sha256=self.spki_sha256,
        )


def judge(heard: Heard, question: Question, *, node: str) -> VerifiedNode:
    """Return the node that was heard, judged by the policy of ``question``; raises what `verify_node` raises.

    And in this order CHANNEL_NOT_BOUND (genuine evidence, made for another connection: somebody stands in between) and
    NODE_NAME_MISMATCH (the machine is enrolled for another node than ``node``).
    """
    try:
        verified = verify_node(
            heard.testimony.bound,
            record=heard.record,
            context=heard.context(question),
            logs=heard.testimony.logs(),
            policy=question.policy,
            now=heard.now,
            demands=question.demands,
        )
    except Refusal as error:
        if error.reason is Reason.BINDING_MISMATCH and _is_of_another_channel(heard, question):
            raise Refusal(
                "expected evidence for this very connection, got genuine evidence for another one: "
                "somebody ends TLS between here and the node",
                reason=Reason.CHANNEL_NOT_BOUND,
            ) from error
        raise
    _require_name(verified.identity.node_name, node)
    return verified


def proven_machine(heard: Heard, question: Question) -> VerifiedMachine | None:
    """Return what a refused node has proven all the same (which TPM, what it booted), None where that is nothing."""
    with suppress(AttestedError):
        return _machine(heard, question)
    return None


def machine_of(heard: Heard, question: Question, *, node: str) -> VerifiedMachine:
    """Return the machine that was heard, by its proof the one enrolled for ``node``; no profile is asked.

    For questions about a policy that does not count yet. Raises what `verify_machine` and the policy's
    ``identity_for`` raise, and NODE_NAME_MISMATCH.
    """
    machine = _machine(heard, question)
    _require_name(question.policy.identity_for(machine.ek_sha256).node_name, node)
    return machine


def _machine(heard: Heard, question: Question) -> VerifiedMachine:
    return verify_machine(
        heard.testimony.bound,
        record=heard.record,
        context=heard.context(question),
        logs=heard.testimony.logs(),
        now=heard.now,
        demands=question.demands,
    )


def _require_name(enrolled: str, node: str) -> None:
    if enrolled != node:
        raise Refusal(
            f"expected the TPM of {node}, the machine has the one enrolled for {enrolled}",
            reason=Reason.NODE_NAME_MISMATCH,
        )


def _is_of_another_channel(heard: Heard, question: Question) -> bool:
    """Say whether the quote is good but for the channel, given the channel that the node itself says it saw."""
    said = heard.testimony
    if (len(said.exporter), len(said.spki_sha256)) != (_CHANNEL_BYTES, _CHANNEL_BYTES):
        return False
    context = replace(heard.context(question), exporter=said.exporter, spki_sha256=said.spki_sha256)
    digest = exchange_digest(
        heard.record.challenge, context, proof=said.bound.proof, hpke_public=said.bound.hpke_public
    )
    try:
        verify_evidence(said.bound.evidence, qualifying_data=digest)
    except AttestedError:
        return False
    return True
