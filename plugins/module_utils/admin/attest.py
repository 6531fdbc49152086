# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request evidence from a node over ssh and judge it on the admin's machine: enrol, verify, init.

The admin's machine is the verifier: it makes the challenge, the node answers, and only verified results are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..errors import Refusal
from ..evidence.challenge import BindingContext, ChallengeRequest, new_challenge
from ..evidence.evidence import BoundEvidence, EventLogs
from ..evidence.verify import Demands, verify_machine, verify_node
from ..policy.in_force import register_selection
from ..policy.learning import DEFAULT_REGISTERS
from ..reasons import Reason
from ..transport.binding import Purpose

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ..core.host import Clock, Random
    from ..evidence.challenge import Challenge, ChallengeRecord
    from ..evidence.tpm2 import VerifiedQuote
    from ..evidence.verify import VerifiedMachine, VerifiedNode
    from ..policy.in_force import PolicyInForce

_LOCK_REGISTER = 15


class NodePort(Protocol):
    """The connection to one node; the Ansible side implements it by the module ``attestation_info``."""

    def identify(self, purpose: Purpose) -> bytes:
        """Return the node's ``attested.v1.ChallengeRequest``."""

    def answer(self, purpose: Purpose, challenge: Challenge) -> Testimony:
        """Return the node's answer to ``challenge``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """A node's answer: ``attested.v1.Binding``, ``attested.v1.EventLogs``, and the handle of an open answer (init)."""

    binding: bytes
    event_logs: bytes
    handle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One exchange with one node, not yet judged."""

    record: ChallengeRecord = field(repr=False)
    context: BindingContext
    bound: BoundEvidence
    logs: EventLogs
    handle: str
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """Verifies nodes of one cluster: its id (32 bytes), the demands, a clock and random numbers."""

    cluster_id: bytes
    demands: Demands
    clock: Clock
    random: Random

    def enroll(self, port: NodePort, *, registers: Iterable[int] = DEFAULT_REGISTERS) -> VerifiedMachine:
        """Return the machine behind ``port``, its TPM and its boot, without a policy.

        ``registers`` are quoted in addition to the node lock's.
        """
        return self._machine(self._exchange(port, Purpose.ENROLL, tuple(sorted({*registers, _LOCK_REGISTER}))))

    def second_key(self, port: NodePort, machine: VerifiedMachine) -> VerifiedMachine:
        """Return the same ``machine``, proven with the other endorsement key of its TPM; ``port`` uses that key.

        One attestation key, without a reset of the TPM between, activates a credential under each of both keys
        (AK_MISMATCH, TPM_RESET_BETWEEN, ACTIVATION_NOT_PROVEN), and the two keys differ (EK_SECOND_REPEATED). The
        caller must check that the second key is vouched for: `enrolment.chip_keys`.
        """
        exchange = self._exchange(port, Purpose.ENROLL, tuple(sorted(machine.quote.pcrs)))
        second = self._machine(exchange, earlier=machine.quote)
        if second.ek_sha256 == machine.ek_sha256:
            raise Refusal(
                f"expected the second endorsement key of the TPM with {machine.ek_sha256}, got that one again",
                reason=Reason.EK_SECOND_REPEATED,
            )
        return second

    def _machine(self, exchange: Exchange, *, earlier: VerifiedQuote | None = None) -> VerifiedMachine:
        return verify_machine(
            exchange.bound,
            record=exchange.record,
            context=exchange.context,
            logs=exchange.logs,
            now=exchange.now,
            earlier=earlier,
            demands=self.demands,
        )

    def verify(self, port: NodePort, *, purpose: Purpose, node: str, policy: PolicyInForce) -> tuple[VerifiedNode, str]:
        """Return the node behind ``port``, judged by ``policy``, and the handle of its answer (init only).

        Raises NODE_NAME_MISMATCH if the TPM is enrolled for another node than ``node``.
        """
        selection = register_selection(policy.profiles(), lock_register=_LOCK_REGISTER)
        exchange = self._exchange(port, purpose, selection)
        verified = verify_node(
            exchange.bound,
            record=exchange.record,
            context=exchange.context,
            logs=exchange.logs,
            policy=policy,
            now=exchange.now,
            demands=self.demands,
        )
        if verified.identity.node_name != node:
            raise Refusal(
                f"expected the TPM of {node}, the machine has the one enrolled for {verified.identity.node_name}",
                reason=Reason.NODE_NAME_MISMATCH,
            )
        return verified, exchange.handle

    def _exchange(self, port: NodePort, purpose: Purpose, selection: tuple[int, ...]) -> Exchange:
        request = ChallengeRequest.parse(port.identify(purpose))
        challenge, record = new_challenge(request, selection=selection, random=self.random, now=self.clock.now())
        testimony = port.answer(purpose, challenge)
        return Exchange(
            record=record,
            context=BindingContext(purpose=purpose, cluster_id=self.cluster_id, request=testimony.event_logs),
            bound=BoundEvidence.parse(testimony.binding),
            logs=EventLogs.parse(testimony.event_logs),
            handle=testimony.handle,
            now=self.clock.now(),
        )
