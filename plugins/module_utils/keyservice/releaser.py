# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One challenge and one release: the order of a release is the order of the lines here.

1. The challenge is taken, once, whatever becomes of the rest, and the proof is checked: for a key that its machine has
   not proven nothing is read, and its lock is not taken.
2. The policy is taken, as the watches have brought it (`keyservice.cached_policy`) or read linearizably; one snapshot
   feeds every check of this try. What speaks against a machine is always read again: memory admits or refuses nobody by
   itself. How often that is done for machines that memory does not know is bounded (`Strangers`).
3. The bound quote is verified against it (`evidence.verify.verify_node`, ten steps).
4. What the machine gets is decided (`release.decide_release`, seven steps).
5. The profile is confirmed, the caller still waits. For a control plane what it gets is read and found whole, and it
   takes its turn (`keyservice.join_lease`), also by compare-and-set.
6. The identity's status is written by compare-and-set, and the watch has come to that write; a change in between begins
   again at 2.
7. Only now something is derived, signed and sealed (`issue.issue_ticket`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..core.files import NamedLocks
from ..errors import ApiError, AttestedError, KeyServiceError, PolicyError, Refusal
from ..evidence.challenge import BindingContext, ChallengeRequest, ChallengeStore, new_challenge
from ..evidence.eventlog.nodelock import LockState
from ..evidence.evidence import BoundEvidence, EventLogs
from ..evidence.registry import verify_doorkeeper
from ..evidence.verify import require_activation, shows_activation, verify_node
from ..policy.identity import Role
from ..policy.standing import OVERDUE_AFTER
from ..reasons import Reason
from ..transport.binding import Purpose
from ..transport.unix_rpc_server import stays
from .ca import JoinCa, load_signing_key
from .derive import DiskId
from .issue import ClusterFacts, Exchange, issue_ticket
from .kubelet import claimed_node_name
from .release import JoinRequest, Proven, decide_release, plan_status
from .strangers import Strangers

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from ..core.host import Clock, Random
    from ..core.rate import TokenBuckets
    from ..evidence.challenge import ChallengeRecord
    from ..evidence.verify import Demands, VerifiedNode
    from ..policy.identity import NodeIdentity
    from .cached_policy import NearPolicy
    from .client import Channel
    from .control_plane import ControlPlaneMaterial, ControlPlaneSource
    from .issue import Issued
    from .key_bundle import KeyBundle
    from .kubelet import ClusterCa
    from .live_policy import LivePolicy, Snapshot, StatusWriter
    from .release import Decision, Held


_ATTEMPTS = 4
_FINAL = frozenset({Reason.CALL_GONE, Reason.CONTROL_PLANE_JOIN_BUSY, Reason.IDENTITY_RATE})
"""Refusals that no other reading of the policy changes."""
_NOBODY_YET = frozenset({Reason.IDENTITY_PENDING, Reason.IDENTITY_UNKNOWN})
"""Refusals of a machine that no admin has decided about: it may pretend to be one of those that are known."""
_UUID_BYTES = 16


class Note(Protocol):
    """Takes fields for the log line of a call."""

    def __call__(self, **fields: str) -> None:
        """Add ``fields`` to the line."""


class Turns(Protocol):
    """Lets one control plane join at a time."""

    def take(self, identity: str) -> None:
        """Give the turn to the identity of this name; raises CONTROL_PLANE_JOIN_BUSY and what the API raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A ticket that was given out, and what the log says of it."""

    issued: Issued
    node_name: str
    profile: str
    role: str
    repeated: bool
    superseded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """What came, parsed, and the record of the challenge that it answers: immutable for all tries."""

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
        near: NearPolicy,
        rate: TokenBuckets,
        control_plane: ControlPlaneSource,
        turns: Turns,
        overdue_after: timedelta = OVERDUE_AFTER,
    ) -> None:
        """Release for the cluster of ``bundle``, with certificates of ``ca``, what ``policy`` allows.

        ``near`` is asked first; ``rate`` bounds how often one proven machine gets a ticket, and ``overdue_after`` how
        old the last evidence of one that renews may be. A control plane gets what ``control_plane`` reads, when
        ``turns`` says that it may join. Tickets name ``api_endpoint`` (host:port) and what ``kubernetes_version``
        returns at that moment.
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
        self._near = near
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
        self.strangers = Strangers(near, clock=clock)

    def configure(self, *, api_endpoint: str, demands: Demands) -> None:
        """Decide by these from the next try on; one that runs keeps what it began with."""
        self._api_endpoint, self._demands = api_endpoint, demands

    def challenge(self, request: bytes, *, source: str = "") -> bytes:
        """Return a `ChallengeResponse`; its only effect is a record that lives for 60 s, counted to ``source``."""
        parsed = ChallengeRequest.parse(request)
        now = self._clock.now()
        made, record = new_challenge(parsed, selection=self._selection(), random=self._random, now=now)
        self._challenges.add(record, now=now, source=source)
        return made.to_bytes()

    @property
    def demands(self) -> Demands:
        """What evidence must show beside the policy, as it is configured now."""
        return self._demands

    def take(self, challenge_id: bytes) -> ChallengeRecord:
        """Return the record of a challenge and forget it; for the other call that answers one (`reattest`)."""
        return self._challenges.take(challenge_id)

    def release(
        self, channel: Channel, request: bytes, binding: bytes, *, note: Note, gone: Callable[[], bool] = stays
    ) -> Released:
        """Return the ticket for a request (its bytes as sent) with its `Binding`; raises what refuses it.

        ``note`` is told the machine's name as soon as it is claimed, for the log; ``gone`` says whether the caller has
        hung up, for whom nothing is written or released any more.
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
            return self._release_near(call) or self._release_anew(call)

    def _selection(self) -> tuple[int, ...]:
        with suppress(ApiError):
            return self._near.selection()
        return self._policy.selection()

    def _release_near(self, call: _Call) -> Released | None:
        """Return what the near view grants, None for whatever it does not: that is asked of the API itself."""
        try:
            return self._try(call, self._near.snapshot_for(call.record.ek_public.spki_sha256()), near=self._near)
        except AttestedError as error:
            if error.reason in _FINAL:
                raise
        return None

    def _release_anew(self, call: _Call) -> Released:
        """Ask the API, no more often than it may be asked about machines that memory does not know."""
        self.strangers.meet(call.record.ek_public.spki_sha256(), source=call.channel.source)
        return self._release(call)

    def _release(self, call: _Call, attempts: int = _ATTEMPTS) -> Released:
        """Try until nobody changed the identity meanwhile; the caller holds this machine's lock."""
        try:
            return self._try(call, self._policy.snapshot_for(call.record.ek_public.spki_sha256()))
        except ApiError as error:
            if error.reason is not Reason.API_CONFLICT or attempts == 1:
                raise
        except PolicyError as error:
            if error.reason in _NOBODY_YET:
                self._refuse_pretender(call)
            raise
        return self._release(call, attempts - 1)

    def _try(self, call: _Call, snapshot: Snapshot, *, near: NearPolicy | None = None) -> Released:
        now = self._clock.now()
        _note_node(call, snapshot)
        node = _verify(call, snapshot, demands=self._demands, now=now)  # 3
        proven = proven_by(node)
        ek = node.identity.ek_sha256  # the machine's, whichever of its keys came
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
        )
        if near is not None:
            near.confirm(snapshot, node.verdict.profile)  # 5
        if call.gone():
            raise KeyServiceError("expected a caller that waits for the ticket, it hung up", reason=Reason.CALL_GONE)
        facts = ClusterFacts(kubernetes_version=self._kubernetes_version(), api_endpoint=self._api_endpoint)
        material = self._material(decision)
        revision = self._writer.write(decision.registration, plan_status(decision, proven=proven, now=now))  # 6
        if near is not None:
            near.settle(ek, revision)
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
        """Return what a control plane gets, once it is its turn; None for who is served as a worker.

        What is not whole takes no turn away from a machine that another control plane could serve.
        """
        if decision.role is not Role.CONTROL_PLANE:
            return None
        material = self._control_plane.read()
        self._turns.take(decision.registration.identity.name)
        return material

    def _refuse_pretender(self, call: _Call) -> None:
        """Refuse by its own reason a machine that nobody let in, and that asks to be a node which another one is (S6).

        Its key is proven. One that waits is no pretender where it asks for the name that its own identity has.
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
                f"expected {claimed} with the TPM of {', '.join(holders)}, got the key {ek}, which nobody let in",
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
    """Tell the log which node the proven key is registered as, also where it will be refused."""
    ek = call.record.ek_public.spki_sha256()
    holder = policy.holder_of(ek)
    if holder is not None:
        call.note(node=holder.node_name)
        note_alias(call.note, holder, ek_sha256=ek)


def note_alias(note: Note, holder: NodeIdentity, *, ek_sha256: str) -> None:
    """Tell the log whose key it is where that is not to be seen from the key itself."""
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
        earlier=verify_doorkeeper(channel.evidence, spki_sha256=channel.spki_sha256, nonce=channel.peer_nonce),
    )


def proven_by(node: VerifiedNode) -> Proven:
    """Return what a verified node proved, as the decisions need it."""
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
