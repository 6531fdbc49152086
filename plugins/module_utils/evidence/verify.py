# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify a machine or a node: check all claims of one answer against the record of its challenge, in numbered steps.

    1. The answer is for this challenge, which has not expired (CHALLENGE_UNKNOWN, CHALLENGE_EXPIRED). The caller must
       ensure that a challenge is answered once: `ChallengeStore.take` removes it before anything is checked.
    2. The proof shows the activated secret, so the TPM holds the endorsement key and the attestation key of the
       challenge (ACTIVATION_NOT_PROVEN).
    3. The evidence is of that attestation key (AK_MISMATCH), which is restricted and fixed to its TPM (AK_ATTRIBUTES,
       AK_KEY_UNSUPPORTED).
    4. The quote is genuine (`tpm2.verify_quote`) and over this exchange: purpose, cluster, channel, nonce, proof,
       request, one-time key (BINDING_MISMATCH).
    5. The quote is over exactly the demanded registers and the delivered values (QUOTE_SELECTION, QUOTE_DIGEST).
    6. The TPM is that of the earlier evidence of this connection, without a reset in between (AK_MISMATCH,
       TPM_RESET_BETWEEN).
    7. The endorsement key names one approved identity (IDENTITY_...). If roots are configured, its certificate chains
       to one of them (EK_CERTIFICATE_...), which is a further check and never a substitute.
    8. The event logs are those that the machine bound, and they lead to the quoted registers (EVENT_LOG_...).
    9. The node lock's register has a state that the purpose permits (NODELOCK_...). A lock that is open (NODELOCK_OPEN)
       is reported after step 10: a machine whose boot changed cannot lock itself, so the boot is the cause to report.
    10. A profile in force that counts for this machine (PROFILE_NOT_FOR_MACHINE) allows the values, and its assertions
       follow from the logs of step 8 (PCR_MISMATCH, POLICY_EMPTY, PROFILE_EXPIRED, SECURE_BOOT_OFF,
       LOCKDOWN_NOT_PROVEN, BOOT_OPTION_UNKNOWN, FIRMWARE_TOO_OLD, KERNEL_NOT_ACCEPTED, SBAT_TOO_OLD).

The identity is checked first: the logs of an unknown machine are not parsed. The compared values are those of the
verified quote, and every check reads the same record. Any error on the way is a refusal.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import PolicyError, Refusal
from ..policy.decision import decide
from ..policy.identity import Role
from ..policy.profile import Applicant
from ..reasons import Reason
from ..transport.binding import Purpose, challenge_proof
from ..transport.sealed_box import seal
from .challenge import exchange_digest
from .ek_certificate import verify_ek_certificate
from .eventlog.facts import boot_facts
from .eventlog.kinds import describe
from .eventlog.nodelock import DEFAULT_REGISTER, LockReading, LockState, read_lock, require_lock_register
from .eventlog.reading import read_boot
from .eventlog.replay import verify_replay
from .eventlog.tcg import parse_firmware_log, parse_records
from .registry import verify_evidence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from .._deps.crypto import x509
    from ..core.host import Random
    from ..policy.assertions import BootFacts
    from ..policy.decision import Verdict
    from ..policy.identity import NodeIdentity
    from ..policy.in_force import PolicyInForce
    from ..policy.profile import MeasuredEvent, MeasurementProfile
    from .challenge import BindingContext, ChallengeRecord
    from .ek_certificate import CertifiedKey
    from .eventlog.reading import BootLine
    from .eventlog.tcg import FirmwareLog, UserspaceRecord
    from .evidence import BoundEvidence, EventLogs
    from .tpm2 import VerifiedQuote


# The results of verification. Only verification creates them, so an instance proves that the checks passed.


class Proof:
    """A token that only this file creates; a verified object without one is a programming error."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BootLogs:
    """Logs that lead to the quoted registers; ``command_line`` is a hint that `describe` accepts only by its hash."""

    firmware: FirmwareLog
    userspace: tuple[UserspaceRecord, ...]
    command_line: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedMachine:
    """A TPM that answered a challenge, and what its machine booted; no profile or identity was checked yet.

    ``ek_sha256``: 64 hex digits, the machine's name. ``binding``: B, 32 bytes. ``hpke_public``: the one-time key that
    the quote names. ``certified``: the chip and the root of its certificate, None if no roots are configured.
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
        """Raise `TypeError` unless verification creates this object."""
        _require_proof(self.proof)

    @property
    def ek_certified(self) -> bool:
        """Whether a chain to a configured root was checked."""
        return self.certified is not None

    @property
    def events(self) -> tuple[MeasuredEvent, ...]:
        """The measured events in words; computed on each access, since only a refusal needs them."""
        return describe(self.boot.firmware, self.boot.userspace, command_line=self.boot.command_line)

    def read(self) -> tuple[BootLine, ...]:
        """Return the boot as lines for display, without events of registers that were not quoted."""
        lines = read_boot(self.boot.firmware, self.boot.userspace, command_line=self.boot.command_line)
        return tuple(line for line in lines if line.pcr in self.quote.pcrs)

    @property
    def facts(self) -> BootFacts:
        """The facts that the logs prove about the quoted registers."""
        return boot_facts(
            self.boot.firmware,
            quoted=self.quote.pcrs.keys(),
            command_line=self.boot.command_line,
            source=self.lock.source,
        )

    def seal(self, plaintext: bytes, *, random: Random | None = None) -> bytes:
        """Return ``plaintext`` sealed to this machine in its verified state, for this exchange."""
        return seal(plaintext, secret=self.secret, binding=self.binding, recipient=self.hpke_public, random=random)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedNode:
    """A machine with an approved identity that booted what a profile allows."""

    proof: Proof = field(repr=False)
    machine: VerifiedMachine
    identity: NodeIdentity
    verdict: Verdict

    def __post_init__(self) -> None:
        """Raise `TypeError` unless verification creates this object."""
        _require_proof(self.proof)

    def require_control_plane(self) -> None:
        """Raise ROLE_NOT_REGISTERED for a node of another role, which must not get what control planes share."""
        if self.identity.role is not Role.CONTROL_PLANE:
            raise Refusal(
                f"expected a control plane, the identity of {self.identity.node_name} says {self.identity.role.value}",
                reason=Reason.ROLE_NOT_REGISTERED,
            )


def _require_proof(proof: object) -> None:
    if not isinstance(proof, Proof):
        raise TypeError("a verified object is made by verification alone")


_PERMITTED = {
    Purpose.ENROLL: (LockState.UNLOCKED, LockState.LOCKED),
    Purpose.INIT: (LockState.UNLOCKED, LockState.LOCKED),
    Purpose.JOIN: (LockState.UNLOCKED, LockState.LOCKED),
    Purpose.RECOVER: (LockState.UNLOCKED, LockState.LOCKED),
    Purpose.SHARE: (LockState.LOCKED,),
    Purpose.VERIFY: (LockState.LOCKED,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """The immutable input of every check: the challenge's record, the answer, and the verifier's own context."""

    record: ChallengeRecord
    bound: BoundEvidence
    context: BindingContext
    logs: EventLogs
    now: datetime
    earlier: VerifiedQuote | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """The configuration of a verifier: the node lock's register, and roots of EK certificates if any.

    ``ek_intermediates``: issuers that the machine does not need to send; they are not trusted (`load_ek_store`).
    """

    lock_register: int = DEFAULT_REGISTER
    ek_roots: tuple[x509.Certificate, ...] = ()
    ek_intermediates: tuple[x509.Certificate, ...] = ()


def verify_machine(
    bound: BoundEvidence,
    *,
    record: ChallengeRecord,
    context: BindingContext,
    logs: EventLogs,
    now: datetime,
    earlier: VerifiedQuote | None = None,
    demands: Demands | None = None,
) -> VerifiedMachine:
    """Return the machine that answered, after all steps except the identity of 7 and the profile of 10.

    For enrolment and learning, before there is a policy. ``earlier``: the verified quote of the same connection's
    first evidence, None over ssh. The caller must decide whether it accepts this endorsement key. Raises `Refusal`.
    """
    exchange = _Exchange(bound=bound, record=record, context=context, logs=logs, now=now, earlier=earlier)
    chosen = demands or Demands()
    quote = _verify_quote(exchange)
    certified = _verify_certificate(exchange, chosen)
    machine = _verify_boot(exchange, chosen, quote, certified)
    _require_permitted(machine)  # 9
    return machine


def verify_node(
    bound: BoundEvidence,
    *,
    record: ChallengeRecord,
    context: BindingContext,
    logs: EventLogs,
    policy: PolicyInForce,
    now: datetime,
    earlier: VerifiedQuote | None = None,
    demands: Demands | None = None,
) -> VerifiedNode:
    """Return the node that answered, after all steps; ``earlier`` as in `verify_machine`.

    Raises `Refusal` or `PolicyError` with the reason of the step, and what ``policy`` raises if it cannot be read.
    """
    exchange = _Exchange(bound=bound, record=record, context=context, logs=logs, now=now, earlier=earlier)
    chosen = demands or Demands()
    quote = _verify_quote(exchange)
    identity = policy.identity_for(record.ek_public.spki_sha256())  # 7
    certified = _verify_certificate(exchange, chosen)
    machine = _verify_boot(exchange, chosen, quote, certified)
    verdict = decide(
        _usable(policy, chosen),
        machine.quote.pcrs,
        _explanations(machine),
        facts=machine.facts,
        now=now,
        applicant=Applicant(role=identity.role, ek_sha256=machine.ek_sha256),
    )  # 10
    _require_permitted(machine)  # 9
    return VerifiedNode(proof=Proof(), machine=machine, identity=identity, verdict=verdict)


def _explanations(machine: VerifiedMachine) -> Iterator[MeasuredEvent]:
    yield from machine.events


def _usable(policy: PolicyInForce, demands: Demands) -> tuple[MeasurementProfile, ...]:
    profiles = policy.profiles()
    pinning = [profile.name for profile in profiles if demands.lock_register in profile.registers]
    if pinning:
        raise PolicyError(
            f"expected profiles without PCR {demands.lock_register}, the node lock's, got {', '.join(pinning)}",
            reason=Reason.NODELOCK_REGISTER_PINNED,
        )
    return profiles


def _verify_quote(exchange: _Exchange) -> VerifiedQuote:
    bound, record = exchange.bound, exchange.record
    proof = require_activation(bound, record=record, now=exchange.now)  # 1, 2
    if bound.evidence.ak_public != record.ak_public.marshal():  # 3
        raise Refusal(
            "expected evidence of the challenged attestation key, got that of another key", reason=Reason.AK_MISMATCH
        )
    binding = exchange_digest(record.challenge, exchange.context, proof=proof, hpke_public=bound.hpke_public)
    quote = verify_evidence(bound.evidence, qualifying_data=binding)  # 4
    if tuple(sorted(quote.pcrs)) != record.challenge.selection:  # 5
        raise Refusal(
            f"expected a quote over {list(record.challenge.selection)}, got a quote over {sorted(quote.pcrs)}",
            reason=Reason.QUOTE_SELECTION,
        )
    if exchange.earlier is not None:
        _verify_continuity(exchange.earlier, quote)  # 6
    return quote


def shows_activation(bound: BoundEvidence, *, record: ChallengeRecord) -> bool:
    """Return whether step 2 holds: the answer is from the challenged machine. It grants nothing."""
    proof = challenge_proof(record.secret, record.challenge.nonce)
    return hmac.compare_digest(bound.proof, proof) and bound.challenge_id == record.challenge.id


def require_activation(bound: BoundEvidence, *, record: ChallengeRecord, now: datetime) -> bytes:
    """Return the proof if steps 1 and 2 hold; raises the `Refusal` of the step.

    A caller uses it before it takes a lock or reads a policy for the key in ``record``, so that an unknown machine
    cannot cause that work.
    """
    _verify_challenge(bound, record, now)  # 1
    return _verify_activation(bound, record)  # 2


def _verify_challenge(bound: BoundEvidence, record: ChallengeRecord, now: datetime) -> None:
    if bound.challenge_id != record.challenge.id:
        raise Refusal(
            f"expected the answer to challenge {record.challenge.id.hex()}, got {bound.challenge_id.hex()}",
            reason=Reason.CHALLENGE_UNKNOWN,
        )
    if now >= record.expires:
        late = (now - record.expires).total_seconds()
        raise Refusal(f"expected an answer in time, got it {late:.0f} s late", reason=Reason.CHALLENGE_EXPIRED)


def _verify_activation(bound: BoundEvidence, record: ChallengeRecord) -> bytes:
    """Return the proof. The refusal of a wrong proof must not reveal the right one (CVE-2023-38201)."""
    proof = challenge_proof(record.secret, record.challenge.nonce)
    if not hmac.compare_digest(bound.proof, proof):
        raise Refusal("expected proof of the activated secret, got another", reason=Reason.ACTIVATION_NOT_PROVEN)
    return proof


def _verify_continuity(earlier: VerifiedQuote, later: VerifiedQuote) -> None:
    if earlier.ak_name != later.ak_name:
        raise Refusal(
            "expected both pieces of evidence of one attestation key, got two keys", reason=Reason.AK_MISMATCH
        )
    old, new = earlier.clock_info, later.clock_info
    same_boot = (old.reset_count, old.restart_count) == (new.reset_count, new.restart_count)
    if not same_boot or new.clock < old.clock:
        raise Refusal(
            f"expected one run of the TPM, got resets {old.reset_count} then {new.reset_count}, "
            f"restarts {old.restart_count} then {new.restart_count}, clock {old.clock} ms then {new.clock} ms",
            reason=Reason.TPM_RESET_BETWEEN,
        )


def _verify_certificate(exchange: _Exchange, demands: Demands) -> CertifiedKey | None:
    return verify_ek_certificate(
        exchange.record.ek_public,
        exchange.record.ek_certificates,
        roots=demands.ek_roots,
        intermediates=demands.ek_intermediates,
        now=exchange.now,
    )  # 7


def _verify_boot(
    exchange: _Exchange, demands: Demands, quote: VerifiedQuote, certified: CertifiedKey | None
) -> VerifiedMachine:
    boot, lock = _verify_logs(exchange.logs, exchange.bound, quote, register=demands.lock_register)  # 8
    _verify_lock(lock, exchange.context)  # 9
    return VerifiedMachine(
        proof=Proof(),
        purpose=exchange.context.purpose,
        ek_sha256=exchange.record.ek_public.spki_sha256(),
        quote=quote,
        boot=boot,
        lock=lock,
        certified=certified,
        binding=exchange_digest(
            exchange.record.challenge,
            exchange.context,
            proof=exchange.bound.proof,
            hpke_public=exchange.bound.hpke_public,
        ),
        hpke_public=exchange.bound.hpke_public,
        secret=exchange.record.secret,
    )


def _verify_logs(
    logs: EventLogs, bound: BoundEvidence, quote: VerifiedQuote, *, register: int
) -> tuple[BootLogs, LockReading]:
    require_lock_register(register)
    if not hmac.compare_digest(bound.event_logs_sha256, logs.digest()):
        raise Refusal(
            f"expected event logs with digest {bound.event_logs_sha256.hex()}, got {logs.digest().hex()}",
            reason=Reason.EVENT_LOG_CHANGED,
        )
    if register not in quote.pcrs:
        raise Refusal(
            f"expected the node lock's PCR {register} in the quote, got {sorted(quote.pcrs)}",
            reason=Reason.QUOTE_SELECTION,
        )
    firmware = parse_firmware_log(logs.firmware)
    userspace = parse_records(logs.userspace, "userspace log")
    verify_replay(quote.pcrs, firmware, userspace, except_for=(register,))
    lock = read_lock(
        quote.pcrs[register],
        register=register,
        firmware=firmware,
        userspace=userspace,
        nodelock=parse_records(logs.nodelock, "node lock log"),
    )
    return BootLogs(firmware=firmware, userspace=userspace, command_line=logs.command_line), lock


def _verify_lock(lock: LockReading, context: BindingContext) -> None:
    if lock.state is LockState.FOREIGN:
        raise Refusal(
            f"expected a node lock that its logs explain, got one where {lock.why}", reason=Reason.NODELOCK_FOREIGN
        )
    if lock.state is LockState.LOCKED and lock.cluster_id != context.cluster_id:
        raise Refusal(
            f"expected a lock to cluster {context.cluster_id.hex()}, got one to {lock.cluster_id.hex()[:128]}",
            reason=Reason.NODELOCK_OTHER_CLUSTER,
        )


def _require_permitted(machine: VerifiedMachine) -> None:
    if machine.lock.state not in _PERMITTED[machine.purpose]:
        raise Refusal(
            f"expected a machine that is locked to its cluster, got an {machine.lock.state.value} one",
            reason=Reason.NODELOCK_OPEN,
        )
