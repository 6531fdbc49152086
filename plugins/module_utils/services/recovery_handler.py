# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of recovery, in the process that holds the TPM: identity, evidence, verification of requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..errors import AttestedError, Refusal
from ..reasons import Reason
from ..transport.binding import Purpose
from .exchanges import Exchanges
from .init_admin import verify_admin
from .recovery_contest import Contender
from .recovery_messages import RecoverAnswer, RecoverOrder
from .recovery_unlock import Offer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ..core.host import Clock
    from ..evidence.challenge import Answer
    from ..transport.pins import JoinCaPins
    from .handshake_evidence import Attester
    from .machine_socket import Begin
    from .recovery_unlock import Unlocking
    from .witness import Facts

EVENT = "recovery"


class Record(Protocol):
    """The record of decisions; `AuditTrail` is the real one."""

    def decided(
        self,
        event: str,
        fields: Mapping[str, object],
        *,
        refusal: Mapping[str, object] | None = None,
        source: str = "",
    ) -> None:
        """Write the record of a decision, or count a refusal without a ``source``; raises AUDIT_UNWRITABLE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """An authenticated request: the serial number of the admin's certificate, and the offer."""

    admin: str
    offer: Offer


class RecoveryDesk:
    """Answers the three calls of recovery; may be used by several threads."""

    def __init__(
        self,
        *,
        attester: Callable[[], AbstractContextManager[Attester]],
        facts: Callable[[], Facts],
        pins: JoinCaPins,
        unlocking: Unlocking,
        record: Record,
        clock: Clock,
    ) -> None:
        """Store the collaborators: each answer opens the TPM by ``attester``; ``pins`` certify the admins."""
        self._exchanges = Exchanges(purpose=Purpose.RECOVER, attester=attester, facts=facts, clock=clock)
        self._facts = facts
        self._pins = pins
        self._unlocking = unlocking
        self._record = record
        self._clock = clock

    def identity(self) -> bytes:
        """Return the serialised `ChallengeRequest` of this machine; raises `TpmError`."""
        return self._exchanges.identity()

    def testimony(self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str = "") -> bytes:
        """Return the serialised `Testimony` for a challenge, for the purpose `recover`; raises as `Exchanges` does."""
        return self._exchanges.testimony(challenge, exporter=exporter, spki_sha256=spki_sha256, source=source)

    def recover(self, begin: Begin, *, correlation_id: str) -> bytes:
        """Return the serialised `RecoverResponse` to a request; raises `Refusal` if the admin is not authenticated.

        1. It is a request, its secrets sealed. MESSAGE_MALFORMED, MESSAGE_TOO_LARGE, SECRETS_IN_CLEAR
        2. It belongs to an open exchange of this channel. CHALLENGE_UNKNOWN, CHANNEL_NOT_BOUND
        3. An admin of this cluster has signed it for this exchange. ADMIN_UNAUTHENTICATED, ADMIN_...
        4. The exchange is used up. The admin is authenticated now, so the response has every later failure's code.
        5. The disk is not open yet, and the key is this disk's: the steps of `Unlocking.offer`.

        Every decision is recorded, that of step 5 before the disk is opened. Refusals of an unauthenticated caller are
        only counted.
        """
        fields: dict[str, object] = {"source": begin.source, "correlation_id": correlation_id}
        try:
            known = self._admitted(begin)
        except AttestedError as error:
            self._refused(error, fields)
            raise
        fields["admin"] = known.admin
        try:
            self._unlocking.offer(
                known.offer, by=Contender.RECOVERY, record=lambda: self._record.decided(EVENT, fields)
            )
        except AttestedError as error:
            self._refused(error, fields)
            return RecoverAnswer(code=error.code, message=error.message, hint=error.hint).to_bytes()
        return RecoverAnswer().to_bytes()

    def _admitted(self, begin: Begin) -> _Known:
        with self._exchanges.turn:
            order = RecoverOrder.parse(begin.request)  # 1
            given = self._exchanges.of(  # 2
                order.challenge_id, exporter=begin.exporter, spki_sha256=begin.spki_sha256
            )
            admin = self._admin(begin, given)  # 3
            self._exchanges.use_up(order.challenge_id)  # 4
        offer = Offer(
            box=order.sealed,
            secret=given.secret,
            binding=given.binding,
            one_time_key=given.one_time_key,
            measurement_salt=order.measurement_salt,
        )
        return _Known(admin=admin, offer=offer)

    def _admin(self, begin: Begin, given: Answer) -> str:
        if not begin.admin_proof:
            raise Refusal("expected an admin's proof, got none", reason=Reason.ADMIN_UNAUTHENTICATED)
        return verify_admin(
            begin.admin_proof,
            pins=self._pins,
            cluster_id=self._facts().cluster_id,
            binding=given.binding,
            request=begin.request,
            now=self._clock.now(),
            purpose=Purpose.RECOVER,
        )

    def _refused(self, error: AttestedError, fields: Mapping[str, object]) -> None:
        refusal = {"reason": error.code, "detail": error.message}
        self._record.decided(EVENT, fields, refusal=refusal, source=str(fields.get("admin", "")))
