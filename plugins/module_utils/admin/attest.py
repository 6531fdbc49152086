# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's machine asks a node for evidence over ssh and judges it: enrol, verify, init.

The site is the verifier: it makes the challenge, the node answers, and only what the verification returns is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..errors import Refusal
from ..evidence.challenge import BindingContext, ChallengeRequest, new_challenge
from ..evidence.evidence import BoundEvidence, EventLogs
from ..evidence.verify import Demands, verify_machine, verify_node
from ..policy.in_force import register_selection
from ..policy.presets import DEFAULT_REGISTERS
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
    """The way to one node; the Ansible side gives one that runs the module ``attestation_info`` there."""

    def identify(self, purpose: Purpose) -> bytes:
        """Return the node's ``attested.v1.ChallengeRequest``."""

    def answer(self, purpose: Purpose, challenge: Challenge) -> Testimony:
        """Return the node's answer to ``challenge``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """What came back: ``attested.v1.Binding``, ``attested.v1.EventLogs``, and the handle of an answer that waits."""

    binding: bytes
    event_logs: bytes
    handle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One exchange with one node, not yet judged."""

    record: ChallengeRecord = field(repr=False)
    context: BindingContext
    bound: BoundEvidence
    logs: EventLogs
    handle: str
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """This side of the exchanges of one cluster: its id (32 bytes), its demands, its clock and random numbers."""

    cluster_id: bytes
    demands: Demands
    clock: Clock
    random: Random

    def enroll(self, port: NodePort, *, registers: Iterable[int] = DEFAULT_REGISTERS) -> VerifiedMachine:
        """Return the machine behind ``port``: which TPM, what it booted; no policy is asked.

        ``registers`` are quoted beside the node lock's: all that is to be learned from, or read.
        """
        return self._machine(self._ask(port, Purpose.ENROLL, tuple(sorted({*registers, _LOCK_REGISTER}))))

    def second_key(self, port: NodePort, machine: VerifiedMachine) -> VerifiedMachine:
        """Return the same ``machine`` as the other endorsement key of its TPM shows it; ``port`` speaks for that key.

        One attestation key, of one run of the TPM, opens a credential under each of both keys (AK_MISMATCH,
        TPM_RESET_BETWEEN, ACTIVATION_NOT_PROVEN), and the other one is another one (EK_SECOND_REPEATED). The caller
        owes that somebody vouches for it: `enrolment.chip_keys`.
        """
        asked = self._ask(port, Purpose.ENROLL, tuple(sorted(machine.quote.pcrs)))
        second = self._machine(asked, earlier=machine.quote)
        if second.ek_sha256 == machine.ek_sha256:
            raise Refusal(
                f"expected the second endorsement key of the TPM with {machine.ek_sha256}, got that one again",
                reason=Reason.EK_SECOND_REPEATED,
            )
        return second

    def _machine(self, asked: Asked, *, earlier: VerifiedQuote | None = None) -> VerifiedMachine:
        return verify_machine(
            asked.bound,
            record=asked.record,
            context=asked.context,
            logs=asked.logs,
            now=asked.now,
            earlier=earlier,
            demands=self.demands,
        )

    def verify(self, port: NodePort, *, purpose: Purpose, node: str, policy: PolicyInForce) -> tuple[VerifiedNode, str]:
        """Return the node behind ``port``, judged by ``policy``, and the handle of its answer (init only).

        Raises NODE_NAME_MISMATCH where the TPM is enrolled for another node than the one that was asked for.
        """
        selection = register_selection(policy.profiles(), lock_register=_LOCK_REGISTER)
        asked = self._ask(port, purpose, selection)
        verified = verify_node(
            asked.bound,
            record=asked.record,
            context=asked.context,
            logs=asked.logs,
            policy=policy,
            now=asked.now,
            demands=self.demands,
        )
        if verified.identity.node_name != node:
            raise Refusal(
                f"expected the TPM of {node}, the machine has the one enrolled for {verified.identity.node_name}",
                reason=Reason.NODE_NAME_MISMATCH,
            )
        return verified, asked.handle

    def _ask(self, port: NodePort, purpose: Purpose, selection: tuple[int, ...]) -> Asked:
        request = ChallengeRequest.parse(port.identify(purpose))
        challenge, record = new_challenge(request, selection=selection, random=self.random, now=self.clock.now())
        said = port.answer(purpose, challenge)
        return Asked(
            record=record,
            context=BindingContext(purpose=purpose, cluster_id=self.cluster_id, request=said.event_logs),
            bound=BoundEvidence.parse(said.binding),
            logs=EventLogs.parse(said.event_logs),
            handle=said.handle,
            now=self.clock.now(),
        )
