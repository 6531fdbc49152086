# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-key-service`: the release decision of a control plane, behind one unix socket (design 6.6, 9.4).

It has no network listener. It alone reads the keys and talks to the API; the join service relays to it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pwd
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..attestation import Demands, load_ek_store
from ..audit import AuditLog, AuditPlace, HeadSigner
from ..errors import AttestedError, KeyServiceError
from ..kube import (
    IDENTITIES,
    ApiGateway,
    AttemptWriter,
    LivePolicy,
    NearPolicy,
    NodeWatcher,
    StatusWriter,
    WaitingRoom,
)
from ..proto import message_class, parse
from ..reasons import Reason
from ..serving import Notifier, Reloader, load_config, open_log, wait_for_stop
from ..system import SystemClock, SystemRandom, TokenBuckets, read_bytes, release
from .auditing import HeadKeeper, refusal_of
from .authority import PolicyAuthority
from .ca import JoinCa, sign_server_certificate
from .client import Channel
from .credential import MintedCredential
from .derive import policy_record_key
from .figures import key_metrics
from .framing import REQUEST, RESPONSE, SOCKET, refusal_answer
from .issue import ClusterFacts
from .kubelet import load_cluster_ca
from .listener import SocketServer, caller_gone, stays
from .policy_client import POLICY_SOCKET
from .policy_watch import PolicyDesk, PolicyWatch
from .reattest import Reattester
from .record import LOCK_DIRECTORY, PolicyRecord, RecordFiles, RecordKey, TpmCounter
from .releaser import Releaser
from .teller import Teller
from .wrap import KeyPaths, KeyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..serving import Line, Log, Metrics
    from ..system import Clock
    from .kubelet import ClusterCa
    from .master import KeyBundle

CONFIG = "/etc/attested/key-service.yml"

_WORKERS = 8
_WATCH_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyServiceConfig:
    """The configuration file; paths have their places on a node as defaults.

    ``api_server`` is the URL of this control plane's own API, ``api_endpoint`` (host:port) what tickets say.
    ``audit_directory``: where each decision is recorded; ``tcti``: the TPM that signs the head of that record, none
    where it is empty. ``tickets_per_second`` and ``ticket_burst`` bound what one proven machine may ask.
    ``ek_roots``: file with roots of TPM makers, or directory with roots and intermediates (`load_ek_store`); with it
    every EK must also be certified. ``unknown_machines``: ``refuse`` them, or ``queue`` those that proved their key.
    ``reattest_overdue_seconds``: how old the last attestation of a node may be.
    """

    node_name: str
    api_server: str
    api_endpoint: str
    kubernetes_version: str
    join_user: str = "attested-join"
    cluster_ca_certificate: Path = Path("/etc/kubernetes/pki/ca.crt")
    cluster_ca_key: Path = Path("/etc/kubernetes/pki/ca.key")
    state_directory: Path = KeyPaths().rest
    runtime_directory: Path = KeyPaths().opened
    socket: Path = Path(SOCKET)
    policy_socket: Path = Path(POLICY_SOCKET)
    tcti: str = "device:/dev/tpmrm0"
    tpm_lock_directory: Path = Path(LOCK_DIRECTORY)
    lock_register: int = 15
    ek_roots: Path | None = None
    audit_directory: Path = Path("/var/log/attested")
    metrics: bool = False
    tickets_per_second: float = 0.5
    ticket_burst: int = 20
    reattest_overdue_seconds: int = 3 * 3600
    unknown_machines: str = "refuse"

    @property
    def queues_unknown_machines(self) -> bool:
        """Whether unknown machines wait for an admin; raises CONFIG_INVALID for a word that is none."""
        if self.unknown_machines not in {"queue", "refuse"}:
            raise KeyServiceError(
                f"expected unknown_machines as queue or refuse, got {self.unknown_machines[:64]!r}",
                reason=Reason.CONFIG_INVALID,
            )
        return self.unknown_machines == "queue"


class KeyService:
    """Answers the calls of the socket; deciding is in `releaser` and below, this is the plumbing."""

    def __init__(
        self,
        releaser: Releaser,
        *,
        bundle: KeyBundle,
        clock: Clock,
        log: Log,
        teller: Teller | None = None,
        audit: AuditLog | None = None,
        reattester: Reattester | None = None,
    ) -> None:
        """Answer with ``releaser`` and the join CA of ``bundle``; each call is one line of ``log``.

        A refusal goes to ``teller`` once it is decided; every decision is in ``audit`` before it is answered.
        """
        self.metrics: Metrics | None = None
        self._audit = audit
        self._reattester = reattester
        self._releaser = releaser
        self._bundle = bundle
        self._clock = clock
        self._log = log
        self._teller = teller
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="release")

    async def handle(self, data: bytes) -> bytes:
        """Answer one message of the socket; every error becomes a refusal."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, self.answer, data, caller_gone())

    def answer(self, data: bytes, gone: Callable[[], bool] = stays) -> bytes:
        """Answer one message in this thread; ``gone`` says whether anybody still waits for it."""
        try:
            request = parse(REQUEST, data)
            kind = request.WhichOneof("call")
            if kind == "health":
                return self._health()
            with self._log.request(f"key_{kind}", correlation_id=request.correlation_id) as line:
                return self._answer(kind, request, line, gone)
        except AttestedError as error:
            return refusal_answer(error)
        except Exception as error:  # noqa: BLE001 - the decision is no; Log.request has written the story
            return refusal_answer(KeyServiceError(f"{type(error).__name__}", reason=Reason.INTERNAL))

    def close(self) -> None:
        """End the workers."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _answer(self, kind: str | None, request: Any, line: Line, gone: Callable[[], bool]) -> bytes:
        try:
            answer = bytes(self._call(kind, request, line, gone).SerializeToString())
        except AttestedError as error:
            self._record(kind, line, refusal_of(error))
            if self._teller is not None:
                self._teller.tell(error, line.fields, now=self._clock.now())
            raise
        except Exception as error:
            self._record(kind, line, {"reason": Reason.INTERNAL.name, "detail": type(error).__name__})
            raise
        if kind != "challenge":  # which gives nothing away, and strangers ask for many
            self._record(kind, line, None)
        return answer

    def _record(self, kind: str | None, line: Line, refusal: dict[str, str] | None) -> None:
        if self._audit is not None:
            self._audit.decided(kind or "unknown", line.fields, refusal=refusal)

    def _call(self, kind: str | None, request: Any, line: Line, gone: Callable[[], bool]) -> Any:
        response = message_class(RESPONSE)()
        if kind == "challenge":
            response.challenge = self._releaser.challenge(request.challenge.request)
        elif kind == "release":
            self._release(request.release, response, line, gone)
        elif kind == "reattest":
            self._reattest(request.reattest, response, line)
        elif kind == "server_certificate":
            response.certificate_chain = self._server_certificate(request.server_certificate.certificate_request)
        else:
            raise KeyServiceError("expected a call that is known, got another", reason=Reason.MESSAGE_MALFORMED)
        return response

    def _reattest(self, call: Any, response: Any, line: Line) -> None:
        if self._reattester is None:
            raise KeyServiceError("expected a service that takes re-attestations", reason=Reason.MESSAGE_MALFORMED)
        done = self._reattester.reattest(_channel(call), call.request, call.binding, note=line.set)
        line.set(node=done.node_name, profile=done.profile)
        response.reattested.node_name = done.node_name
        response.reattested.response = done.to_bytes()

    def _release(self, call: Any, response: Any, line: Line, gone: Callable[[], bool]) -> None:
        channel = _channel(call)
        released = self._releaser.release(channel, call.request, call.binding, note=line.set, gone=gone)
        line.set(
            node=released.node_name,
            profile=released.profile,
            repeated=released.repeated,
            superseded=released.superseded,
        )
        response.ticket.ticket = released.issued.ticket
        response.ticket.signature = released.issued.signature
        response.ticket.node_name = released.node_name

    def _server_certificate(self, der: bytes) -> bytes:
        ca = JoinCa(certificate=self._bundle.join_ca_certificate, private_key=self._bundle.join_ca_key.reveal())
        return sign_server_certificate(der, ca=ca, cluster_id=self._bundle.cluster_id, now=self._clock.now())

    def _health(self) -> bytes:
        response = message_class(RESPONSE)()
        response.health.ready = True
        response.health.state = "open"
        response.health.cluster_id = self._bundle.cluster_id
        if self.metrics is not None:
            response.health.metrics = self.metrics.exposition()
        return bytes(response.SerializeToString())


def _channel(call: Any) -> Channel:
    return Channel(
        exporter=call.channel.exporter,
        spki_sha256=call.channel.spki_sha256,
        peer_nonce=call.channel.peer_nonce,
        evidence=call.channel.evidence,
    )


async def serve(config: KeyServiceConfig, *, log: Log, path: str = CONFIG) -> None:
    """Serve until SIGTERM; raises KEYS_ABSENT, CLUSTER_CA_UNUSABLE, FILE_UNUSABLE, TPM_… before it listens.

    On SIGHUP ``path`` is read again: what tickets say and the EK roots change then, the rest needs a restart.
    """
    bundle = _opened_bundle(config)
    ca = load_cluster_ca(read_bytes(config.cluster_ca_certificate), read_bytes(config.cluster_ca_key))
    gateway = ApiGateway(
        server=config.api_server,
        ca_file=config.cluster_ca_certificate,
        credential=MintedCredential(ca, config.runtime_directory, clock=SystemClock()),
    )
    record = _record(config, bundle)
    record.load()
    authority = PolicyAuthority(record, public_key=bundle.policy_key, cluster_id=bundle.cluster_id)
    policy = LivePolicy(gateway, authority, clock=SystemClock(), lock_register=config.lock_register)
    near = NearPolicy(gateway, authority, clock=SystemClock(), lock_register=config.lock_register)
    attempts = AttemptWriter(gateway, gateway, clock=SystemClock())
    waiting = WaitingRoom(gateway, gateway, clock=SystemClock())
    teller = Teller(attempts, waiting=waiting if config.queues_unknown_machines else None)
    releaser = _releaser(config, bundle, ca, gateway, policy=policy, near=near)
    audit = _audit(config)
    service = KeyService(
        releaser,
        bundle=bundle,
        clock=SystemClock(),
        log=log,
        teller=teller,
        audit=audit,
        reattester=_reattester(config, bundle, gateway, releaser, policy),
    )
    reloader = Reloader(
        lambda: load_config(KeyServiceConfig, path),
        lambda new: releaser.configure(facts=_facts(new), demands=_demands(new)),
        log=log,
    )
    if config.metrics:
        service.metrics = key_metrics(log, near=near, audit=audit, reloader=reloader)
    reloader.listen()
    servers = _servers(config, service, PolicyDesk(record, authority, log=log), log)
    for server in servers:
        await server.start()
    _follow(config, gateway, policy, near, log)
    watch = PolicyWatch(gateway, policy, node_name=config.node_name, clock=SystemClock())
    _start("policy", watch.run_once, log)
    _start("attempts", attempts.run_once, log)
    _start("audit", _keeper(config, audit, gateway, near).run_once, log)
    _start("queue", waiting.run_once, log)
    Notifier().ready(f"{release()}, serving cluster {bundle.cluster_id.hex()[:16]}")
    log.event("serving", cluster=bundle.cluster_id.hex(), socket=str(config.socket))
    log.event("stopping", signal=await wait_for_stop())
    for server in servers:
        await server.stop()
    service.close()
    audit.append("stopped")
    audit.sync()


def _audit(config: KeyServiceConfig) -> AuditLog:
    place = AuditPlace(directory=config.audit_directory)
    audit = AuditLog(place, node=config.node_name, clock=SystemClock(), random=SystemRandom())
    audit.append("started", version=release())
    return audit


def _keeper(config: KeyServiceConfig, audit: AuditLog, gateway: ApiGateway, near: NearPolicy) -> HeadKeeper:
    return HeadKeeper(
        audit,
        node=config.node_name,
        signer=HeadSigner.at(config.tcti, lock_directory=config.tpm_lock_directory),
        gateway=gateway,
        identities=near.caches[IDENTITIES],
        clock=SystemClock(),
    )


def _servers(config: KeyServiceConfig, service: KeyService, desk: PolicyDesk, log: Log) -> tuple[SocketServer, ...]:
    """Return the two sockets: one for the join service, and one for root alone."""
    user = _join_user(config.join_user)

    def refused(uid: int) -> None:
        log.event("caller_refused", user=uid)

    async def tell(data: bytes) -> bytes:
        return await asyncio.to_thread(desk.answer, data)

    joins = SocketServer(
        config.socket,
        handler=service.handle,
        allowed=frozenset({0, user.pw_uid}),
        group=user.pw_gid,
        refused=refused,
    )
    root = frozenset({0, os.geteuid()})
    return joins, SocketServer(config.policy_socket, handler=tell, allowed=root, refused=refused)


def _record(config: KeyServiceConfig, bundle: KeyBundle) -> PolicyRecord:
    key = RecordKey(
        key=policy_record_key(bundle.master, bundle.cluster_id),
        cluster_id=bundle.cluster_id,
        node_name=config.node_name,
    )
    counter = TpmCounter(config.tcti, lock_directory=config.tpm_lock_directory)
    return PolicyRecord(RecordFiles(config.state_directory), counter, key)


def _releaser(
    config: KeyServiceConfig,
    bundle: KeyBundle,
    ca: ClusterCa,
    gateway: ApiGateway,
    *,
    policy: LivePolicy,
    near: NearPolicy,
) -> Releaser:
    return Releaser(
        bundle=bundle,
        facts=_facts(config),
        ca=ca,
        policy=policy,
        writer=StatusWriter(gateway),
        demands=_demands(config),
        clock=SystemClock(),
        random=SystemRandom(),
        near=near,
        rate=TokenBuckets(
            rate=config.tickets_per_second,
            burst=config.ticket_burst,
            clock=SystemClock(),
            reason=Reason.IDENTITY_RATE,
            what="tickets a second of one machine",
        ),
    )


def _facts(config: KeyServiceConfig) -> ClusterFacts:
    return ClusterFacts(kubernetes_version=config.kubernetes_version, api_endpoint=config.api_endpoint)


def _reattester(
    config: KeyServiceConfig, bundle: KeyBundle, gateway: ApiGateway, releaser: Releaser, policy: LivePolicy
) -> Reattester:
    return Reattester(
        cluster_id=bundle.cluster_id,
        take=releaser.take,
        policy=policy,
        writer=StatusWriter(gateway),
        demands=lambda: releaser.demands,
        clock=SystemClock(),
        overdue_after=timedelta(seconds=config.reattest_overdue_seconds),
    )


def _demands(config: KeyServiceConfig) -> Demands:
    store = load_ek_store([config.ek_roots] if config.ek_roots else [])
    return Demands(lock_register=config.lock_register, ek_roots=store.roots, ek_intermediates=store.intermediates)


def _opened_bundle(config: KeyServiceConfig) -> KeyBundle:
    paths = KeyPaths(rest=config.state_directory, opened=config.runtime_directory)
    bundle = KeyStore(paths).opened()
    if bundle is None:
        raise KeyServiceError(
            f"expected the opened keys in {paths.opened_file}, found none: attested-unlock opens them",
            reason=Reason.KEYS_ABSENT,
        )
    return bundle


def _join_user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise KeyServiceError(
            f"expected the user {name} of the join service, found none", reason=Reason.CONFIG_INVALID
        ) from error


def _follow(config: KeyServiceConfig, gateway: ApiGateway, policy: LivePolicy, near: NearPolicy, log: Log) -> None:
    """Keep the near view, and set identities to `Joined` as their Nodes appear; each watch in a thread of its own."""
    watcher = NodeWatcher(
        gateway,
        policy,
        StatusWriter(gateway),
        own_name=config.node_name,
        joined=lambda name: log.event("joined", node=name),
    )
    watches = {"nodes": watcher.run_once, **{plural: cache.follow for plural, cache in near.caches.items()}}
    for name, run_once in watches.items():
        _start(name, run_once, log)


def _start(name: str, run_once: Callable[[], None], log: Log) -> None:
    threading.Thread(target=_repeat, args=(name, run_once, log), name=name, daemon=True).start()


def _repeat(name: str, run_once: Callable[[], None], log: Log) -> None:
    """Run it for ever; while the API is away, try again every few seconds, and say so once."""
    clock, told = SystemClock(), ""
    while True:
        try:
            run_once()
            told = ""
        except AttestedError as error:
            if error.code != told:
                log.event("watch_interrupted", what=name, reason=error.code, detail=error.message)
            told = error.code
            clock.sleep(_WATCH_PAUSE_SECONDS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error where it cannot serve."""
    parser = argparse.ArgumentParser(
        prog="attested-key-service", description="Decide about tickets of this cluster, behind a unix socket."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {release()}")
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help="the configuration (default: %(default)s)")
    options = parser.parse_args(argv)
    try:
        config = load_config(KeyServiceConfig, options.config)
        asyncio.run(serve(config, log=open_log(), path=options.config))
    except AttestedError as error:
        sys.stderr.write(f"attested-key-service: {error}\n")
        return 1
    return 0
