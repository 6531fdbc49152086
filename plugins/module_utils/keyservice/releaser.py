# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One challenge and one release, in the order of these steps.

1. The challenge is consumed, even if a later step fails, and the activation proof is checked. Nothing is read and no
   lock is taken for a key that was not proven.
2. The policy is read, from the cache (`keyservice.cached_policy`) or linearizably from the API. One snapshot is used
   for all checks of an attempt. A refusal by the cache is always checked with the API: the cache alone neither admits
   nor refuses a machine. API reads for machines that are not in the cache are limited (`Strangers`).
3. The bound quote is verified against it (`evidence.verify.verify_node`, ten steps).
4. What the machine gets is decided (`release.decide_release`, seven steps).
5. The policy is confirmed, and the caller still waits. For a control plane its files are read and checked, and it
   takes its turn (`keyservice.join_lease`), also by compare-and-set.
6. The identity's status is written by compare-and-set, and the watch has delivered that write. A change in between
   restarts at step 2.
7. Only then the secrets are derived, and the ticket is signed and sealed (`issue.issue_ticket`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ..core.files import NamedLocks
from ..errors import ApiError, AttestedError, KeyServiceError, PolicyError, Refusal
from ..evidence.challenge import BindingContext, ChallengeRequest, ChallengeStore, new_challenge
from ..evidence.eventlog.nodelock import LockState
from ..evidence.evidence import BoundEvidence, EventLogs
from ..evidence.registry import verify_handshake_evidence
from ..evidence.verify import require_activation, shows_activation, verify_node
from ..policy.identity import Role
from ..policy.standing import OVERDUE_AFTER
from ..reasons import Reason
from ..transport.binding import Purpose
from ..transport.unix_rpc import never_gone
from .ca import JoinCa, load_signing_key
from .cached_policy import Strangers
from .derive import DiskId
from .issue import ClusterFacts, Exchange, issue_ticket
from .kubelet import claimed_node_name
from .release import JoinRequest, Proven, decide_release, plan_status

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from ..core.host import Clock, Random
    from ..core.rate import TokenBuckets
    from ..evidence.challenge import ChallengeRecord
    from ..evidence.verify import Demands, VerifiedNode
    from ..policy.identity import NodeIdentity
    from .cached_policy import CachedPolicy
    from .client import Channel
    from .control_plane import ControlPlaneMaterial, ControlPlaneSource
    from .issue import Issued
    from .key_bundle import KeyBundle
    from .kubelet import ClusterCa
    from .live_policy import LivePolicy, Snapshot, StatusWriter
    from .release import Decision, Held


_ATTEMPTS = 4
_FINAL = frozenset({Reason.CALL_GONE, Reason.CONTROL_PLANE_JOIN_BUSY, Reason.IDENTITY_RATE})
"""Refusals that a new read of the policy does not change."""
_UNDECIDED = frozenset({Reason.IDENTITY_PENDING, Reason.IDENTITY_UNKNOWN})
"""Refusals of a machine that no admin has decided about: it may claim the name of a known node."""
_UUID_BYTES = 16


class Note(Protocol):
    """Adds fields to the log line of a call."""

    def __call__(self, **fields: str) -> None:
        """Add ``fields`` to the line."""


class Turns(Protocol):
    """Lets one control plane join at a time."""

    def take(self, identity: str) -> None:
        """Give the turn to the identity of this name; raises CONTROL_PLANE_JOIN_BUSY and `ApiError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """An issued ticket, and its fields for the log."""

    issued: Issued
    node_name: str
    profile: str
    role: str
    repeated: bool
    superseded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The parsed request, and the record of its challenge; the same for all attempts."""

    request: JoinRequest
    bound: BoundEvidence
    record: ChallengeRecord
    context: BindingContext
    channel: Channel
    note: Note
    gone: Callable[[], bool]


class Releaser:
    """Challenges machines and releases tickets; may be used by several threads."""

    def __init__(
        self,
        *,
        bundle: KeyBundle,
        api_endpoint: str,
        kubernetes_version: Callable[[], str],
        ca: ClusterCa,
        policy: LivePolicy,
        writer: StatusWriter,
        demands: Demands,
        clock: Clock,
        random: Random,
        cached: CachedPolicy,
        rate: TokenBuckets,
        control_plane: ControlPlaneSource,
        turns: Turns,
        overdue_after: timedelta = OVERDUE_AFTER,
    ) -> None:
        """Release tickets for the cluster of ``bundle``, with certificates of ``ca``, as ``policy`` allows.

        The cached policy ``cached`` is used first. ``rate`` limits the tickets of one proven machine; ``overdue_after``
        is the maximum age of the last evidence of a machine that renews. A control plane gets what ``control_plane``
        reads, after it took its turn from ``turns``. Tickets name ``api_endpoint`` (host:port), and the version that
        ``kubernetes_version`` returns at that moment.
        """
        self._overdue_after = overdue_after
        self._bundle = bundle
        self._api_endpoint = api_endpoint
        self._kubernetes_version = kubernetes_version
        self._ca = ca
        self._signing_key = load_signing_key(
            JoinCa(certificate=bundle.join_ca_certificate, private_key=bundle.join_ca_key.reveal())
        )
        self._policy = policy
        self._cached = cached
        self._rate = rate
        self._control_plane = control_plane
        self._turns = turns
        self._writer = writer
        self._demands = demands
        self._clock = clock
        self._random = random
        self._challenges = ChallengeStore()
        self._held: dict[str, Held] = {}
        self._machines = NamedLocks()
        self.strangers = Strangers(cached, clock=clock)

    def configure(self, *, api_endpoint: str, demands: Demands) -> None:
        """Use these values from the next attempt on."""
        self._api_endpoint, self._demands = api_endpoint, demands

    def challenge(self, request: bytes, *, source: str = "") -> bytes:
        """Return a `ChallengeResponse`; the only effect is a record, kept for 60 s and counted for ``source``."""
        parsed = ChallengeRequest.parse(request)
        now = self._clock.now()
        made, record = new_challenge(parsed, selection=self._selection(), random=self._random, now=now)
        known = self._cached.last_tpm(record.ek_public.spki_sha256())
        self._challenges.add(replace(record, tpm=known), now=now, source=source)
        return made.to_bytes()

    @property
    def demands(self) -> Demands:
        """The configured demands on evidence, in addition to the policy."""
        return self._demands

    def take(self, challenge_id: bytes) -> ChallengeRecord:
        """Remove and return the record of a challenge; for `reattest`, which also answers challenges."""
        return self._challenges.take(challenge_id)

    def release(
        self, channel: Channel, request: bytes, binding: bytes, *, note: Note, gone: Callable[[], bool] = never_gone
    ) -> Released:
        """Return the ticket for a request (its bytes as sent) with its `Binding`; raises the refusal.

        ``note`` receives fields for the log as soon as they are known. ``gone`` returns whether the caller has closed
        the connection; then nothing is written or released.
        """
        bound = BoundEvidence.parse(binding)
        record = self._challenges.take(bound.challenge_id)  # 1
        note(ek=record.ek_public.spki_sha256())
        if shows_activation(bound, record=record):
            note(proven="yes")
        require_activation(bound, record=record, now=self._clock.now())
        call = _Call(
            request=JoinRequest.parse(request),
            bound=bound,
            record=record,
            context=BindingContext(
                purpose=Purpose.JOIN,
                cluster_id=self._bundle.cluster_id,
                request=request,
                exporter=channel.exporter,
                spki_sha256=channel.spki_sha256,
            ),
            channel=channel,
            note=note,
            gone=gone,
        )
        with self._machines.held(record.ek_public.spki_sha256()):
            return self._release_cached(call) or self._release_live(call)

    def _selection(self) -> tuple[int, ...]:
        with suppress(ApiError, PolicyError):  # the cache may be older than what a read of the API has recorded
            return self._cached.selection()
        return self._policy.selection()

    def _release_cached(self, call: _Call) -> Released | None:
        """Return the ticket by the cached policy, or None: then the API is read."""
        try:
            return self._try(call, self._cached.snapshot_for(call.record.ek_public.spki_sha256()), cached=self._cached)
        except AttestedError as error:
            if error.reason in _FINAL:
                raise
        return None

    def _release_live(self, call: _Call) -> Released:
        """Decide by the API, within the limit of API reads for machines that are not in the cache."""
        self.strangers.take(call.record.ek_public.spki_sha256(), source=call.channel.source)
        return self._release(call)

    def _release(self, call: _Call, attempts: int = _ATTEMPTS) -> Released:
        """Try until no other write changed the identity meanwhile; the caller holds this machine's lock."""
        try:
            return self._try(call, self._policy.snapshot_for(call.record.ek_public.spki_sha256()))
        except ApiError as error:
            if error.reason is not Reason.API_CONFLICT or attempts == 1:
                raise
        except PolicyError as error:
            if error.reason in _UNDECIDED:
                self._refuse_pretender(call)
            raise
        return self._release(call, attempts - 1)

    def _try(self, call: _Call, snapshot: Snapshot, *, cached: CachedPolicy | None = None) -> Released:
        now = self._clock.now()
        _note_node(call, snapshot)
        node = _verify(call, snapshot, demands=self._demands, now=now)  # 3
        proven = proven_by(node)
        ek = node.identity.ek_sha256  # of the machine, whichever of its keys it used
        self._rate.take(ek)
        decision = decide_release(  # 4
            call.request,
            proven=proven,
            registration=snapshot.registration_for(ek),
            held=self._held.get(ek),
            fresh_disk=DiskId.from_random(self._random.token(_UUID_BYTES)),
            now=now,
            inherited_disk=snapshot.inherited_disk(node.identity),
            overdue_after=self._overdue_after,
            challenged=call.record.tpm,
        )
        if cached is not None:
            cached.confirm(snapshot)  # 5
        if call.gone():
            raise KeyServiceError("expected a caller that waits for the ticket, it hung up", reason=Reason.CALL_GONE)
        facts = ClusterFacts(kubernetes_version=self._kubernetes_version(), api_endpoint=self._api_endpoint)
        material = self._material(decision)
        revision = self._writer.write(decision.registration, plan_status(decision, proven=proven, now=now))  # 6
        if cached is not None:
            cached.settle(ek, revision)
        issued = self._issue(decision, node, now, facts, material)  # 7
        self._held[ek] = issued.held
        return Released(
            issued=issued,
            node_name=node.identity.node_name,
            profile=node.verdict.profile,
            role=decision.role.value,
            repeated=decision.repeats is not None,
            superseded=decision.supersedes,
        )

    def _material(self, decision: Decision) -> ControlPlaneMaterial | None:
        """Return the content for a control plane after it took its turn; None for a worker's ticket.

        The content is checked before the turn is taken. So a control plane with broken files does not block a machine
        that another control plane could serve.
        """
        if decision.role is not Role.CONTROL_PLANE:
            return None
        material = self._control_plane.read()
        self._turns.take(decision.registration.identity.name)
        return material

    def _refuse_pretender(self, call: _Call) -> None:
        """Raise IDENTITY_NODE_TAKEN if a machine that is not approved requests the name of another machine's node (S6).

        Its key is proven. A pending machine may request the node name of its own identity.
        """
        claimed = claimed_node_name(call.request.certificate_request)
        if not claimed:
            return
        call.note(claims=claimed)
        ek = call.record.ek_public.spki_sha256()
        own = {one.identity.name for one in self._policy.registrations_of(ek)}
        holders = [name for name in self._policy.holders_of(claimed) if name not in own]
        if holders:
            raise Refusal(
                f"expected {claimed} with the TPM of {', '.join(holders)}, got the key {ek}, which is not approved",
                reason=Reason.IDENTITY_NODE_TAKEN,
            )

    def _issue(
        self,
        decision: Decision,
        node: VerifiedNode,
        now: datetime,
        facts: ClusterFacts,
        material: ControlPlaneMaterial | None,
    ) -> Issued:
        machine = node.machine
        exchange = Exchange(secret=machine.secret, binding=machine.binding, recipient=machine.hpke_public)
        return issue_ticket(
            decision,
            bundle=self._bundle,
            facts=facts,
            ca=self._ca,
            signing_key=self._signing_key,
            exchange=exchange,
            now=now,
            control_plane=material,
        )


def _note_node(call: _Call, policy: Snapshot) -> None:
    """Log the node that the proven key is registered for, even if the machine is then refused."""
    ek = call.record.ek_public.spki_sha256()
    holder = policy.holder_of(ek)
    if holder is not None:
        call.note(node=holder.node_name)
        note_alias(call.note, holder, ek_sha256=ek)


def note_alias(note: Note, holder: NodeIdentity, *, ek_sha256: str) -> None:
    """Log the name of the identity if the key is its alias, because the key does not show it."""
    if ek_sha256 != holder.ek_sha256:
        note(identity=holder.name)


def _verify(call: _Call, policy: Snapshot, *, demands: Demands, now: datetime) -> VerifiedNode:
    channel = call.channel
    return verify_node(
        call.bound,
        record=call.record,
        context=call.context,
        logs=EventLogs.parse(call.request.event_logs),
        policy=policy,
        now=now,
        demands=demands,
        earlier=verify_handshake_evidence(channel.evidence, spki_sha256=channel.spki_sha256, nonce=channel.peer_nonce),
    )


def proven_by(node: VerifiedNode) -> Proven:
    """Return the `Proven` of a verified node."""
    quote = node.machine.quote
    return Proven(
        ak_name=quote.ak_name,
        clock=quote.clock_info.clock,
        reset_count=quote.clock_info.reset_count,
        restart_count=quote.clock_info.restart_count,
        profile=node.verdict.profile,
        posture=node.verdict.posture.value,
        locked=node.machine.lock.state is LockState.LOCKED,
        registers={pcr: quote.pcrs[pcr] for pcr in node.verdict.labels},
    )
