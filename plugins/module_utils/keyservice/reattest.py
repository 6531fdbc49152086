# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify the evidence that a node pushes on a schedule, and write the time into the identity's status.

1. The challenge is consumed, even if a later step fails, and the activation proof is checked.
2. The policy is read, from the cache (`keyservice.cached_policy`) or linearizably from the API. As with a release, the
   cache alone neither admits nor refuses a machine. API reads for machines that are not in the cache are limited
   (`Strangers`).
3. The bound quote is verified for the purpose `verify` (`evidence.verify.verify_node`, ten steps): the machine is
   locked to this cluster.
4. The machine does not push too often (IDENTITY_RATE). This is checked after step 3, so that a stranger cannot use up
   the pushes of another machine.
5. Its AK is the pinned one, and its TPM was not rolled back (AK_NOT_PINNED, TPM_ROLLED_BACK). A worker that was
   rebooted has received a ticket since (NODELOCK_NO_TICKET).
6. The policy is confirmed and the caller still waits (CALL_GONE). Then the status is written by compare-and-set, and
   the watch has delivered that write. A change in between restarts at step 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ApiError, AttestedError, KeyServiceError, Refusal
from ..evidence.challenge import BindingContext
from ..evidence.evidence import BoundEvidence, EventLogs
from ..evidence.registry import verify_handshake_evidence
from ..evidence.verify import require_activation, shows_activation, verify_node
from ..policy.identity import Role
from ..policy.standing import Standing, judge_standing
from ..proto.messages import message_class, parse
from ..reasons import Reason
from ..transport.binding import Purpose
from ..transport.unix_rpc import never_gone
from .live_policy import StatusChange
from .release import check_continuity
from .releaser import note_alias, proven_by

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from ..core.host import Clock
    from ..core.rate import TokenBuckets
    from ..evidence.challenge import ChallengeRecord
    from ..evidence.verify import Demands, VerifiedNode
    from ..policy.identity import TpmRecord
    from .cached_policy import CachedPolicy, Strangers
    from .client import Channel
    from .live_policy import LivePolicy, Registration, Snapshot, StatusWriter
    from .release import Proven
    from .releaser import Note

_ATTEMPTS = 4
_FINAL = frozenset({Reason.CALL_GONE, Reason.IDENTITY_RATE})
"""Refusals that a new read of the policy does not change."""
_MAX_REQUEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reattested:
    """A successful re-attestation, and when the next one is overdue."""

    node_name: str
    profile: str
    due: datetime

    def to_bytes(self) -> bytes:
        """Return the serialised ``attested.v1.ReattestResponse``."""
        message = message_class("attested.v1.ReattestResponse")(due_unix_seconds=int(self.due.timestamp()))
        return bytes(message.SerializeToString())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Push:
    """The received evidence, and the record of its challenge; the same for all attempts."""

    channel: Channel
    request: bytes
    bound: BoundEvidence
    record: ChallengeRecord
    note: Note
    gone: Callable[[], bool]

    @property
    def ek(self) -> str:
        """The digest of the proven endorsement key."""
        return self.record.ek_public.spki_sha256()


class Reattester:
    """Verifies the evidence that nodes push; may be used by several threads."""

    def __init__(
        self,
        *,
        cluster_id: bytes,
        take: Callable[[bytes], ChallengeRecord],
        policy: LivePolicy,
        writer: StatusWriter,
        demands: Callable[[], Demands],
        clock: Clock,
        overdue_after: timedelta,
        rate: TokenBuckets,
        cached: CachedPolicy,
        strangers: Strangers,
        recovered: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """Decide by ``cached``, then by ``policy``; each attempt calls ``demands``, and ``take`` consumes a challenge.

        ``rate`` limits the pushes of one proven machine. ``recovered`` is called with the identity's name when evidence
        is good after a refusal, after it was overdue, or for the first time.
        """
        self._cached = cached
        self._rate = rate
        self._strangers = strangers
        self._recovered = recovered
        self._cluster_id = cluster_id
        self._take = take
        self._policy = policy
        self._writer = writer
        self._demands = demands
        self._clock = clock
        self._overdue_after = overdue_after

    def reattest(
        self, channel: Channel, request: bytes, binding: bytes, *, note: Note, gone: Callable[[], bool] = never_gone
    ) -> Reattested:
        """Verify a `ReattestRequest` (its bytes as sent) and write the status; raises the refusal.

        ``gone`` returns whether the caller has closed the connection; then nothing is written.
        """
        bound = BoundEvidence.parse(binding)
        record = self._take(bound.challenge_id)  # 1
        note(ek=record.ek_public.spki_sha256())
        if shows_activation(bound, record=record):
            note(proven="yes")
        require_activation(bound, record=record, now=self._clock.now())
        self._strangers.take(record.ek_public.spki_sha256(), source=channel.source)
        push = _Push(channel=channel, request=request, bound=bound, record=record, note=note, gone=gone)
        return self._reattest_cached(push) or self._reattest(push)

    def _reattest_cached(self, push: _Push) -> Reattested | None:
        """Return the result by the cached policy, or None: then the API is read."""
        try:
            return self._try(push, self._cached.snapshot_for(push.ek), cached=self._cached)
        except AttestedError as error:
            if error.reason in _FINAL:
                raise
        return None

    def _reattest(self, push: _Push, attempts: int = _ATTEMPTS) -> Reattested:
        """Try until no other write changed the identity meanwhile, up to ``attempts`` times."""
        try:
            return self._try(push, self._policy.snapshot_for(push.ek))
        except ApiError as error:
            if error.reason is not Reason.API_CONFLICT or attempts == 1:
                raise
        return self._reattest(push, attempts - 1)

    def _try(self, push: _Push, snapshot: Snapshot, *, cached: CachedPolicy | None = None) -> Reattested:
        now, ek = self._clock.now(), push.ek
        holder = snapshot.holder_of(ek)
        if holder is not None:
            push.note(node=holder.node_name)
            note_alias(push.note, holder, ek_sha256=ek)
        node = self._verify(push, snapshot=snapshot, now=now)  # 3
        self._rate.take(node.identity.ek_sha256)  # 4; by the machine, whichever of its keys it used
        registration, proven = snapshot.registration_for(node.machine.ek_sha256), proven_by(node)
        check_standing(registration, proven, challenged=push.record.tpm)  # 5
        if cached is not None:
            cached.confirm(snapshot)  # 6
        if push.gone():
            raise KeyServiceError("expected a caller that waits for the answer, it hung up", reason=Reason.CALL_GONE)
        revision = self._writer.write(registration, plan_reattested(proven, now=now))
        if cached is not None:
            cached.settle(ek, revision)
        if self._standing_before(registration, now) is not Standing.GOOD:
            self._recovered(registration.identity.name)
        return Reattested(
            node_name=node.identity.node_name, profile=node.verdict.profile, due=now + self._overdue_after
        )

    def _standing_before(self, registration: Registration, now: datetime) -> Standing:
        status = registration.identity.status
        return judge_standing(status, known_since=now, now=now, overdue_after=self._overdue_after).standing

    def _verify(self, push: _Push, *, snapshot: Snapshot, now: datetime) -> VerifiedNode:
        channel = push.channel
        message = parse("attested.v1.ReattestRequest", push.request, limit=_MAX_REQUEST_BYTES)
        return verify_node(
            push.bound,
            record=push.record,
            context=BindingContext(
                purpose=Purpose.VERIFY,
                cluster_id=self._cluster_id,
                request=push.request,
                exporter=channel.exporter,
                spki_sha256=channel.spki_sha256,
            ),
            logs=EventLogs.parse(message.event_logs),
            policy=snapshot,
            now=now,
            demands=self._demands(),
            earlier=verify_handshake_evidence(
                channel.evidence, spki_sha256=channel.spki_sha256, nonce=channel.peer_nonce
            ),
        )


def check_standing(registration: Registration, proven: Proven, *, challenged: TpmRecord | None = None) -> None:
    """Raise unless the proven TPM continues from the state in the identity's status (`check_continuity`). Pure.

    A control plane locks itself at each boot and needs no ticket for it; a worker needs one.
    """
    status = registration.identity.status
    if status.ak_name and status.ak_name != proven.ak_name.hex():
        raise Refusal(
            f"expected the pinned AK {status.ak_name}, got {proven.ak_name.hex()}", reason=Reason.AK_NOT_PINNED
        )
    locked = registration.identity.role is Role.WORKER
    check_continuity(status.tpm, proven.tpm, locked=locked, challenged=challenged)


def plan_reattested(proven: Proven, *, now: datetime) -> StatusChange:
    """Return the status of a good re-attestation; it has no fields of tickets, disk or phase.

    The register values belong to the profile in the same status, which may differ from that of the last ticket.
    """
    return StatusChange(
        ak_name=proven.ak_name.hex(),
        clock=proven.clock,
        reset_count=proven.reset_count,
        restart_count=proven.restart_count,
        attested_at=now,
        profile=proven.profile,
        posture=proven.posture,
        registers=proven.registers,
    )
