# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key service's decisions in this process: releaser and reattester with an API in memory, and one machine."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log, open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.core.rate import TokenBuckets
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    BindingContext,
    Challenge,
    ChallengeRequest,
    answer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import NodeLock, NodeLockPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import issue_handshake_evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import AuditPlace, AuditTrail
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.cached_policy import CachedPolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import Channel
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.control_plane import OwnControlPlane
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_attempts import RefusalReporter
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_lease import JoinTurns
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle, make_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES, PROFILES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kubelet import ClusterCa
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import (
    LivePolicy,
    StatusChange,
    StatusWriter,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import JOINED, ClusterRelease
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.reattest import Reattester
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.releaser import Released, Releaser
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.rpc import KeyService
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.control_plane import (
    GivenControlPlane,
    shared_files,
    write_files,
)
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of, learned, logs_of
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway, release_of
from ansible_collections.attested.kubernetes.tests.support.policy_site import (
    POLICY_KEY,
    MemoryCounter,
    PolicySite,
    authority_of,
    record_in,
)
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_attempts import Attempt

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class StandingClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.moment = NOW

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.moment.timestamp()

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def make_bundle_of_test() -> KeyBundle:
    ca = make_join_ca("prod", now=NOW)
    return make_bundle(
        master=MasterSecret(key=SecretBytes(b"k" * 32), salt=SecretBytes(b"s" * 32)),
        measurement_salt=b"m" * 32,
        join_ca_key=SecretBytes(ca.private_key),
        join_ca_certificate=ca.certificate,
        policy_key=POLICY_KEY,
    )


def make_cluster_ca() -> ClusterCa:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    return ClusterCa(made.sign(key, hashes.SHA256()), key)


def kubelet_request(node_name: str = "w-1") -> bytes:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node_name}"),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        serialization.Encoding.DER
    )


class Attempts:
    """Record all attempts."""

    def __init__(self) -> None:
        self.noted: list[Attempt] = []

    def note(self, attempt: Attempt) -> None:
        self.noted.append(attempt)


class Bed:
    """A releaser with an API in memory, and one enrolled machine; the cache is empty until a test calls `follow`."""

    def __init__(self, role: Role = Role.WORKER) -> None:
        self.boot = boots.load("deb13-base")
        self.tpm = SoftTpm(self.boot.pcrs)
        self.identity = identity_of(self.tpm.ek, role=role)
        self.asks_control_plane = role is Role.CONTROL_PLANE
        self.gateway = FakeGateway(
            render_identity(self.identity), render_profile(learned(self.boot)), release_of("1.35.4")
        )
        self.clock = StandingClock()
        self.cluster_release = ClusterRelease(self.gateway, clock=self.clock, versions=dict)
        self.bundle = make_bundle_of_test()
        self.site = PolicySite(self.bundle.cluster_id)
        self.directory = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.directory)
        self.record = record_in(self.directory, MemoryCounter(), cluster_id=self.bundle.cluster_id)
        self.authority = authority_of(self.record, cluster_id=self.bundle.cluster_id)
        self.control_plane = GivenControlPlane()
        self.sign()
        self.authority.adopt(self.policy)
        self.csr = kubelet_request()
        self.notes: dict[str, str] = {}
        self.nodelock = b""
        self.live = LivePolicy(self.gateway, self.authority, clock=self.clock)
        self.cached = CachedPolicy(self.gateway, self.authority, clock=self.clock)
        self.rate = TokenBuckets(
            rate=1000, burst=1000, clock=self.clock, reason=Reason.IDENTITY_RATE, what="tickets a second of one machine"
        )
        self.releaser = Releaser(
            bundle=self.bundle,
            api_endpoint="api:6443",
            kubernetes_version=self.cluster_release.version,
            ca=make_cluster_ca(),
            policy=self.live,
            writer=StatusWriter(self.gateway),
            demands=Demands(),
            clock=self.clock,
            random=SystemRandom(),
            cached=self.cached,
            rate=self.rate,
            control_plane=self.control_plane,
            turns=JoinTurns(self.gateway, clock=self.clock, freed=lambda name: None),
        )
        self.pushes = TokenBuckets(
            rate=1000,
            burst=1000,
            clock=self.clock,
            reason=Reason.IDENTITY_RATE,
            what="re-attestations a second of one machine",
        )
        self.attempts = Attempts()

    def service(self, *, log: Log | None = None) -> KeyService:
        """Return the calls of this releaser, like the service's, without metrics."""
        return KeyService(
            self.releaser,
            bundle=self.bundle,
            clock=self.clock,
            log=log or open_log(),
            reporter=RefusalReporter(self.attempts),
            audit=AuditTrail(
                AuditPlace(directory=self.directory / "audit"), node="cp-1", clock=self.clock, random=SystemRandom()
            ),
            reattester=self.reattester(),
            metrics=None,
        )

    def reattester(self, *, recovered: Callable[[str], None] = lambda _name: None) -> Reattester:
        """Return a reattester that calls ``recovered`` when the standing of a node becomes good."""
        return Reattester(
            cluster_id=self.bundle.cluster_id,
            take=self.releaser.take,
            policy=self.live,
            writer=StatusWriter(self.gateway),
            demands=Demands,
            clock=self.clock,
            overdue_after=timedelta(hours=3),
            rate=self.pushes,
            recovered=recovered,
            cached=self.cached,
            strangers=self.releaser.strangers,
        )

    def follow(self, *plurals: str) -> None:
        """Load the current objects of ``plurals`` into the cache."""
        for plural in plurals:
            self.cached.caches[plural]._begin(*self.gateway.listing(plural))

    def watch(self) -> None:
        """Load all objects into the cache, which then receives every write at once."""
        self.follow(*self.cached.caches)
        patch, cache = self.gateway.patch_status, self.cached.caches[IDENTITIES]

        def told(plural: str, name: str, *, status: Mapping[str, Any], revision: str) -> str:
            now = patch(plural, name, status=status, revision=revision)
            try:
                cache._take({"type": "MODIFIED", "object": self.gateway.object(plural, name)})
            except Exception:
                cache.invalidate()  # as `follow` does
                raise
            return now

        self.gateway.patch_status = told  # type: ignore[method-assign]

    def forget(self) -> None:
        """Clear the caches of texts that services parse or verify once."""
        self.live._parsed.clear()
        self.cached._policy._parsed.clear()
        self.authority._known = self.record._followed = None

    def give_own_files(self, files: Mapping[str, bytes]) -> None:
        """Give a control plane these ``files`` besides those of kubeadm, from disk, and the policy from the record."""
        directory = self.directory / "kubernetes"
        write_files(directory, {**shared_files(), **files})
        self.releaser._control_plane = OwnControlPlane(self.gateway, self.authority, directory=directory)

    def join(self) -> None:
        """Make the machine a node: a ticket, its lock, and its identity Joined."""
        self.release()
        self.lock()
        ek = self.tpm.ek.public.spki_sha256()
        known = self.live.snapshot_for(ek).registration_for(ek)
        StatusWriter(self.gateway).write(known, StatusChange(phase=JOINED))

    def sign(self, **changes: Any) -> None:
        """Sign the present profiles and identities of control planes."""
        objects = [*self.gateway.objects(PROFILES), *self.gateway.objects(IDENTITIES)]
        self.policy = self.site.sign(objects, **changes)
        self.gateway.apply(self.policy)

    def channel(self) -> Channel:
        spki, nonce = b"k" * 32, b"n" * 32
        evidence = issue_handshake_evidence(self.tpm, self.tpm.ak, spki_sha256=spki, nonce=nonce, pcrs=(15,))
        return Channel(exporter=b"e" * 32, spki_sha256=spki, peer_nonce=nonce, evidence=evidence)

    def exchange(self) -> tuple[Channel, bytes, bytes]:
        """Return a valid call of Release."""
        logs = self._logs()
        message = message_class("join.IssueJoinTicketRequest")(
            certificate_request=self.csr, event_logs=logs.to_bytes(), is_control_plane=self.asks_control_plane
        )
        return self._answered(message.SerializeToString(), logs, Purpose.JOIN)

    def push(self) -> tuple[Channel, bytes, bytes]:
        """Return a valid call of Reattest, by the machine after its `lock`."""
        logs = self._logs()
        message = message_class("attested.v1.ReattestRequest")(event_logs=logs.to_bytes())
        return self._answered(message.SerializeToString(), logs, Purpose.VERIFY)

    def lock(self) -> None:
        """Take the node lock of the machine."""
        userspace = self.directory / "tpm2-measure.log"
        userspace.write_bytes(self.boot.userspace)
        paths = NodeLockPaths(directory=self.directory, userspace_log=userspace)
        NodeLock(self.tpm, paths=paths).acquire(self.bundle.cluster_id)
        self.nodelock = paths.log.read_bytes()

    def _logs(self) -> EventLogs:
        return logs_of(self.boot, nodelock=self.nodelock)

    def _answered(self, request: bytes, logs: EventLogs, purpose: Purpose) -> tuple[Channel, bytes, bytes]:
        channel = self.channel()
        asked = ChallengeRequest(ek_public=self.tpm.ek.public, ak_public=self.tpm.ak.public)
        challenge = Challenge.parse(self.releaser.challenge(asked.to_bytes()))
        context = BindingContext(
            purpose=purpose,
            cluster_id=self.bundle.cluster_id,
            request=request,
            exporter=channel.exporter,
            spki_sha256=channel.spki_sha256,
        )
        given = answer(self.tpm, challenge, context, ek=self.tpm.ek, ak=self.tpm.ak, logs=logs)
        return channel, request, given.bound.to_bytes()

    def release(self, *call: Any) -> Released:
        return self.releaser.release(*(call or self.exchange()), note=self.notes.update)

    def status(self) -> dict[str, Any]:
        return self.gateway.status(self.identity.name)
