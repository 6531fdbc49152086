# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the key service from its configuration. This is the only file that knows all parts.

1. `_base`: the keys, the API and the policy, which all other parts need.
2. `_releaser`, `_reattester`: the decisions.
3. `_reporter`, `_metrics`, `_audit`, `_servers`: reports of refusals, metrics, the audit log and the sockets.
4. `_tasks`: the background tasks.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.files import read_bytes, write_atomic
from ..core.host import SystemClock, SystemRandom, release
from ..core.metrics import counted
from ..core.rate import TokenBuckets
from ..core.runtime import Reloader, load_config
from ..errors import AttestedError, KeyServiceError
from ..evidence.ek_profile import load_ek_store
from ..evidence.verify import Demands
from ..reasons import Reason
from ..transport.unix_rpc import SocketServer
from .attestation_state import RefusalKeeper
from .audit_log import AuditPlace, AuditTrail
from .auditing import HeadKeeper, HeadSigner
from .backups import newest_backup
from .cached_policy import CachedPolicy, CachedReader
from .config import KeyServiceConfig
from .control_plane import OwnControlPlane
from .initial_disk import FounderDisk
from .join_attempts import AttemptWriter, RefusalReporter, WaitingQueue
from .join_lease import JoinTurns
from .key_bundle import KeyBundle, KeyPaths
from .kube_api import IDENTITIES, PROFILES, ApiGateway, CredentialFiles
from .kubelet import SERVICE_LIFE, load_cluster_ca, mint_service_credential
from .live_policy import LivePolicy, StatusWriter
from .node_conditions import StandingWatcher
from .nodes import AdmissionLists, ClusterRelease, NodeWatcher, UsageWatcher
from .policy_watch import PolicyHandler, PolicyWatch
from .reattest import Reattester
from .record import PolicyAuthority, PolicyRecord, RecordFiles, RecordKey, TpmCounter
from .releaser import Releaser
from .rpc import KeyService
from .serving_approver import ServingApprover
from .wrap import KeyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from ..core.host import Clock
    from ..core.logs import Log
    from ..core.metrics import Metrics
    from .kubelet import ClusterCa


# The background tasks of the key service: each runs in a thread of its own, in a loop.

_PAUSE_SECONDS = 5.0


class Background:
    """Tasks by name; each is started again when it returns or raises."""

    def __init__(self, tasks: Mapping[str, Callable[[], None]], *, clock: Clock, log: Log) -> None:
        """Store the ``tasks``; `start` runs each of them for ever."""
        self._tasks = tasks
        self._clock = clock
        self._log = log

    def start(self) -> None:
        """Start a thread for each task; none of them keeps the process alive."""
        for name in self._tasks:
            threading.Thread(target=self._repeat, args=(name,), name=name, daemon=True).start()

    def _repeat(self, name: str) -> None:
        """Run one task for ever; after an error wait a few seconds. Repeated errors of one reason are logged once."""
        logged = ""
        while True:
            try:
                self._tasks[name]()
                logged = ""
            except AttestedError as error:
                if error.code != logged:
                    self._log.event("watch_interrupted", what=name, reason=error.code, detail=error.message)
                logged = error.code
                self._clock.sleep(_PAUSE_SECONDS)


# The key service's own credential for the API: issued by the cluster CA for 24 h, renewed after half of its lifetime.


class MintedCredential:
    """Files in ``directory`` (root-only tmpfs) with a client certificate that is never older than 12 h."""

    def __init__(self, ca: ClusterCa, directory: Path, *, clock: Clock) -> None:
        """Store the arguments; ``ca`` issues the certificate at the first use."""
        self._ca = ca
        self._directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._serial = 0
        self._renew_at: datetime | None = None

    def current(self) -> CredentialFiles:
        """Return the files to use now; issues a certificate if there is none or half of its lifetime is over."""
        with self._lock:
            now = self._clock.now()
            if self._renew_at is None or now >= self._renew_at:
                self._mint(now)
                self._renew_at = now + SERVICE_LIFE / 2
                self._serial += 1
            return CredentialFiles(
                self._directory / "api-client.crt", self._directory / "api-client.key", serial=self._serial
            )

    def _mint(self, now: datetime) -> None:
        certificate, key = mint_service_credential(self._ca, now=now)
        write_atomic(self._directory / "api-client.key", key)
        write_atomic(self._directory / "api-client.crt", certificate)


# The metrics of the key service. It has no network listener, so the join service reads them and serves them.


def key_metrics(
    log: Log,
    *,
    cached: CachedPolicy,
    audit: AuditTrail,
    reloader: Reloader[KeyServiceConfig],
    standings: StandingWatcher,
) -> Metrics | None:
    """Return metrics of the lines of ``log`` and the state of the other arguments; None without the library."""
    metrics = counted("key", log)
    if metrics is None:
        return None
    metrics.gauge(
        "config_generation", "How often the configuration and its EK roots were read.", lambda: reloader.generation
    )
    metrics.gauge("audit_sequence", "Number of the last audit record.", lambda: audit.head().sequence)
    metrics.gauge("audit_unsigned_records", "Audit records after the last signed head.", audit.unsigned)
    metrics.gauge("identities", "Identities in the cache.", lambda: len(cached.caches[IDENTITIES]))
    metrics.gauge("profiles", "Profiles in the cache.", lambda: len(cached.caches[PROFILES]))
    metrics.gauge("nodes_not_attested", "Nodes whose evidence was refused or is overdue.", lambda: standings.bad)
    metrics.gauge_each(
        "node_attested_time_seconds",
        "When the evidence of a node was last good; 0: never.",
        "node",
        lambda: standings.attested,
    )
    metrics.gauge_each("node_ready", "Whether the Node of a machine is Ready.", "node", lambda: standings.ready)
    metrics.gauge(
        "nodes_read_time_seconds",
        "When the nodes were last read from the API, by the quorum of etcd; 0: not since the start.",
        lambda: standings.looked_at,
    )
    metrics.gauge("backup_time_seconds", "When this machine's newest backup was written; 0: none.", newest_backup)
    return metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The running parts: the service, the sockets that receive its calls, and the background tasks."""

    cluster_id: bytes
    service: KeyService
    servers: tuple[SocketServer, ...]
    tasks: Background
    reloader: Reloader[KeyServiceConfig]
    audit: AuditTrail


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """The keys, the API, and the policy: read from the API (``policy``), and from watches (``cached``).

    ``attempts`` and ``waiting`` write objects for refusals, ``standings`` writes the conditions of Nodes, ``turns``
    manages the Lease of joining control planes, ``release`` knows the Kubernetes version.
    """

    config: KeyServiceConfig
    log: Log
    bundle: KeyBundle
    ca: ClusterCa
    gateway: ApiGateway
    record: PolicyRecord
    authority: PolicyAuthority
    policy: LivePolicy
    cached: CachedPolicy
    attempts: AttemptWriter
    waiting: WaitingQueue
    standings: StandingWatcher
    turns: JoinTurns
    release: ClusterRelease


def assemble(config: KeyServiceConfig, *, log: Log, path: str) -> Parts:
    """Return all parts, none of them started; raises as `service.serve` does.

    ``path``: the configuration file, which the reloader reads again.
    """
    base = _base(config, log)
    releaser = _releaser(base)
    audit = _audit(config)
    reloader = Reloader(
        lambda: load_config(KeyServiceConfig, path),
        lambda new: releaser.configure(api_endpoint=new.api_endpoint, demands=_demands(new)),
        log=log,
    )
    service = KeyService(
        releaser,
        bundle=base.bundle,
        clock=SystemClock(),
        log=log,
        reporter=_reporter(base),
        audit=audit,
        reattester=_reattester(base, releaser),
        metrics=_metrics(base, audit, reloader) if config.metrics else None,
    )
    return Parts(
        cluster_id=base.bundle.cluster_id,
        service=service,
        servers=_servers(base, service),
        tasks=_tasks(base, audit),
        reloader=reloader,
        audit=audit,
    )


def _base(config: KeyServiceConfig, log: Log) -> _Base:
    bundle = _opened_bundle(config)
    ca = load_cluster_ca(read_bytes(config.cluster_ca_certificate), read_bytes(config.cluster_ca_key))
    gateway = ApiGateway(
        server=config.api_server,
        ca_file=config.cluster_ca_certificate,
        credential=MintedCredential(ca, config.runtime_directory, clock=SystemClock()),
    )
    record = _record(config, bundle)
    record.load()
    record.renew()
    KeyStore(_key_paths(config)).note_held(bundle)
    authority = PolicyAuthority(record, public_key=bundle.policy_key, cluster_id=bundle.cluster_id)
    policy = LivePolicy(gateway, authority, clock=SystemClock(), lock_register=config.lock_register)
    cached = CachedPolicy(gateway, authority, clock=SystemClock(), lock_register=config.lock_register)
    standings = StandingWatcher(
        gateway,
        policy,
        cached=cached,
        clock=SystemClock(),
        overdue_after=config.overdue_after,
        grace=config.grace,
        marked=lambda name, standing: log.event("marked", node=name, standing=standing),
    )
    return _Base(
        config=config,
        log=log,
        bundle=bundle,
        ca=ca,
        gateway=gateway,
        record=record,
        authority=authority,
        policy=policy,
        cached=cached,
        attempts=AttemptWriter(gateway, gateway, clock=SystemClock()),
        waiting=WaitingQueue(gateway, gateway, clock=SystemClock()),
        standings=standings,
        turns=JoinTurns(gateway, clock=SystemClock(), freed=lambda name: log.event("turn_ended", identity=name)),
        release=ClusterRelease(gateway, clock=SystemClock(), versions=lambda: standings.versions),
    )


def _key_paths(config: KeyServiceConfig) -> KeyPaths:
    return KeyPaths(rest=config.state_directory, opened=config.runtime_directory)


def _opened_bundle(config: KeyServiceConfig) -> KeyBundle:
    paths = _key_paths(config)
    bundle = KeyStore(paths).opened()
    if bundle is None:
        raise KeyServiceError(
            f"expected the opened keys in {paths.opened_file}, found none: attested-unlock opens them",
            reason=Reason.KEYS_ABSENT,
        )
    return bundle


def _record(config: KeyServiceConfig, bundle: KeyBundle) -> PolicyRecord:
    first, *former = bundle.record_keys()
    key = RecordKey(key=first, cluster_id=bundle.cluster_id, node_name=config.node_name, former=tuple(former))
    counter = TpmCounter(config.tcti, lock_directory=config.tpm_lock_directory)
    return PolicyRecord(RecordFiles(config.state_directory), counter, key)


def _releaser(base: _Base) -> Releaser:
    config = base.config
    return Releaser(
        bundle=base.bundle,
        api_endpoint=config.api_endpoint,
        kubernetes_version=base.release.version,
        ca=base.ca,
        policy=base.policy,
        writer=StatusWriter(base.gateway),
        demands=_demands(config),
        clock=SystemClock(),
        random=SystemRandom(),
        cached=base.cached,
        rate=_rate(config, "tickets"),
        control_plane=OwnControlPlane(base.gateway, base.authority, directory=config.kubernetes_directory),
        turns=base.turns,
        overdue_after=config.overdue_after,
    )


def _rate(config: KeyServiceConfig, what: str) -> TokenBuckets:
    """Return a separate limit for ``what``: a machine that pushes evidence too often can still get its tickets."""
    return TokenBuckets(
        rate=config.tickets_per_second,
        burst=config.ticket_burst,
        clock=SystemClock(),
        reason=Reason.IDENTITY_RATE,
        what=f"{what} a second of one machine",
    )


def _demands(config: KeyServiceConfig) -> Demands:
    store = load_ek_store([config.ek_roots] if config.ek_roots else [])
    return Demands(lock_register=config.lock_register, ek_roots=store.roots, ek_intermediates=store.intermediates)


def _reattester(base: _Base, releaser: Releaser) -> Reattester:
    return Reattester(
        cluster_id=base.bundle.cluster_id,
        take=releaser.take,
        policy=base.policy,
        writer=StatusWriter(base.gateway),
        demands=lambda: releaser.demands,
        clock=SystemClock(),
        overdue_after=base.config.overdue_after,
        rate=_rate(base.config, "re-attestations"),
        cached=base.cached,
        strangers=releaser.strangers,
        recovered=base.standings.wake,
    )


def _reporter(base: _Base) -> RefusalReporter:
    keeper = RefusalKeeper(
        base.policy,
        StatusWriter(base.gateway),
        kept=base.standings.wake,
        lost=lambda ek, code: base.log.event("refusal_not_kept", ek=ek, reason=code),
    )
    waiting = base.waiting if base.config.queues_unknown_machines else None
    return RefusalReporter(base.attempts, waiting=waiting, keeper=keeper)


def _metrics(base: _Base, audit: AuditTrail, reloader: Reloader[KeyServiceConfig]) -> Metrics | None:
    return key_metrics(base.log, cached=base.cached, audit=audit, reloader=reloader, standings=base.standings)


def _audit(config: KeyServiceConfig) -> AuditTrail:
    place = AuditPlace(directory=config.audit_directory)
    audit = AuditTrail(place, node=config.node_name, clock=SystemClock(), random=SystemRandom())
    audit.append("started", version=release())
    return audit


def _servers(base: _Base, service: KeyService) -> tuple[SocketServer, ...]:
    """Return the two sockets: one for the join service, and one for root only."""
    config, log = base.config, base.log
    user = _join_user(config.join_user)
    handler = PolicyHandler(base.record, base.authority, log=log)

    def refused(uid: int) -> None:
        log.event("caller_refused", user=uid)

    async def answer(data: bytes) -> bytes:
        return await asyncio.to_thread(handler.answer, data)

    joins = SocketServer(
        config.socket,
        handler=service.handle,
        allowed=frozenset({0, user.pw_uid}),
        group=user.pw_gid,
        refused=refused,
    )
    root = frozenset({0, os.geteuid()})
    return joins, SocketServer(config.policy_socket, handler=answer, allowed=root, refused=refused)


def _join_user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise KeyServiceError(
            f"expected the user {name} of the join service, found none", reason=Reason.CONFIG_INVALID
        ) from error


def _tasks(base: _Base, audit: AuditTrail) -> Background:
    """Return the background tasks: watches, the policy, and the writes that calls have queued."""
    node_name = base.config.node_name
    nodes = NodeWatcher(
        base.gateway,
        base.policy,
        StatusWriter(base.gateway),
        cached=base.cached,
        own_name=node_name,
        joined=lambda name: base.log.event("joined", node=name),
        own_disk=lambda: _founder_disk(base.config),
    )
    usage = UsageWatcher(CachedReader(base.gateway, base.cached.caches), base.gateway, clock=SystemClock())
    watch = PolicyWatch(
        base.gateway,
        base.policy,
        cached=base.cached,
        node_name=node_name,
        clock=SystemClock(),
        log=base.log,
    )
    lists = AdmissionLists(base.cached.caches, base.gateway, clock=SystemClock())
    tasks = {
        "lists": lists.run_once,
        "nodes": nodes.run_once,
        **{plural: cache.follow for plural, cache in base.cached.caches.items()},
        "policy": watch.run_once,
        "attempts": base.attempts.run_once,
        "audit": _keeper(base, audit).run_once,
        "queue": base.waiting.run_once,
        "release": base.release.follow,
        "release_status": base.release.run_once,
        "standings": base.standings.run_once,
        "turns": base.turns.run_once,
        "usage": usage.run_once,
    }
    if base.config.kubelet_serving:
        tasks["serving"] = _approver(base, audit).run_once
    return Background(tasks, clock=SystemClock(), log=base.log)


def _founder_disk(config: KeyServiceConfig) -> str:
    disk = FounderDisk(config.founder_disk_file).load()
    return disk.uuid if disk else ""


def _approver(base: _Base, audit: AuditTrail) -> ServingApprover:
    return ServingApprover(
        base.gateway,
        base.policy,
        audit=audit,
        log=base.log,
        clock=SystemClock(),
        rate=_rate(base.config, "serving certificates"),
        overdue_after=base.config.overdue_after,
    )


def _keeper(base: _Base, audit: AuditTrail) -> HeadKeeper:
    config = base.config
    return HeadKeeper(
        audit,
        node=config.node_name,
        signer=HeadSigner.at(config.tcti, lock_directory=config.tpm_lock_directory),
        gateway=base.gateway,
        identities=base.cached.caches[IDENTITIES],
        clock=SystemClock(),
    )
