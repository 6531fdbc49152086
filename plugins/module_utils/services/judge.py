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
