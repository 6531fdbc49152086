# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both services as real processes with a real API, and machines with a test attester that request tickets."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    Answer,
    BindingContext,
    Challenge,
    ChallengeRequest,
    answer,
    exchange_digest,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import BoundEvidence, EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import NodeLock, NodeLockPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import issue
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import (
    KeyClient,
    PolicyClient,
    RecordState,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle, make_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    REVOKED_LABEL,
    render_identity,
    render_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import (
    Attester,
    DoorkeeperIssuer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import (
    BINDING_METADATA,
    CHALLENGE,
    ISSUE_JOIN_TICKET,
    JoinConfig,
    JoinMachine,
    call,
    kubelet_request,
    reattest,
    request_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.ticket_store import TicketStore
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey
from ansible_collections.attested.kubernetes.tests.support import boots, run_service
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of, learned, logs_of
from ansible_collections.attested.kubernetes.tests.support.kube import release_of
from ansible_collections.attested.kubernetes.tests.support.log_schema import require as require_lines
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY, PolicySite
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.swtpm import SwtpmFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import TicketMaterial
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

GOOD_BOOT = "deb13-base"
CHANGED_BOOT = "deb13-cmdline"
MASTER_CANARY = b"canary-master-secret-0123456789a"
POLICY = "attestationpolicies.attested-kubernetes.dev"
RELEASE = "clusterreleases.attested-kubernetes.dev"
MANY_CONNECTIONS = {"connections_per_second": 1000.0, "connection_burst": 1000}
_START_SECONDS = 180


def bundle_of(master_key: bytes = MASTER_CANARY) -> KeyBundle:
    """Return the keys of a cluster with a new join CA."""
    ca = make_join_ca("bed", now=datetime.now(UTC))
    return make_bundle(
        master=MasterSecret(key=SecretBytes(master_key), salt=SecretBytes(b"t" * 32)),
        measurement_salt=b"m" * 32,
        join_ca_key=SecretBytes(ca.private_key),
        join_ca_certificate=ca.certificate,
        policy_key=POLICY_KEY,
    )


class ServiceBed:
    """Key service and join service of one control plane: one with our user, the other as user nobody.

    With ``real_pace`` the key service polls as often as in production (`run_service`).
    """

    def __init__(
        self, api: ApiBed, bundle: KeyBundle | None = None, *, name: str = "cp-1", real_pace: bool = False
    ) -> None:
        self.api = api
        self._pace = ["real"] if real_pace else []
        self.name = name
        self.bundle = bundle or bundle_of()
        self.directory = Path(tempfile.mkdtemp(prefix="attested-bed-"))
        self.directory.chmod(0o711)
        self.port, self.metrics_port = free_port(), free_port()
        self.join_user = "nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tpms = SwtpmFactory(self.directory / "tpms")
        self.swtpm = self._tpms.start(name)
        self._prepare()

    # ---- life

    def start(self) -> None:
        """Start both and wait until the join service listens."""
        self.start_key_service()
        self.adopt()
        self.start_join_service()

    def adopt(self) -> RecordState:
        """Apply the policy of the API like the site; the first one signs the profile of the good boot."""
        if not self.api.get(RELEASE)["items"]:
            self.api.apply(release_of("1.35.4"))
        found = self.api.get(POLICY)["items"]
        if not found:
            self.sign(generation=1)
        return PolicyClient(self.policy_socket).adopt(self.policy())

    def policy(self) -> dict[str, Any]:
        """Return the signed policy of the API in the site's form."""
        found = self.api.get(POLICY, "cluster")
        return {**found, "metadata": {"name": "cluster"}, "status": {}}

    def sign(
        self,
        *,
        generation: int = 0,
        identities: Sequence[dict[str, Any]] = (),
        others: Sequence[dict[str, Any]] = (),
        **changes: Any,
    ) -> dict[str, Any]:
        """Apply a policy with the profile of the good boot and ``others``; by default with the next generation."""
        site = PolicySite(self.bundle.cluster_id)
        site.generation = generation - 1 if generation else self.policy()["spec"]["generation"]
        signed = site.sign([render_profile(learned(boots.load(GOOD_BOOT))), *others, *identities], **changes)
        self.api.apply(signed)
        return signed

    def start_key_service(self) -> None:
        """Start the key service and wait until it answers."""
        me = pwd.getpwuid(os.getuid()).pw_name
        self._spawn("key", me)
        client = KeyClient(self.socket)
        self._wait("key", lambda: client.health().ready)

    def start_join_service(self) -> None:
        """Start the join service and wait until it listens."""
        self._spawn("join", self.join_user)
        self._wait("join", self._listens)

    def limit_join(self, **limits: float) -> None:
        """Restart the join service with these ``limits`` for one address, else the defaults."""
        self.configure_join(**limits)
        self.kill("join")
        self.start_join_service()

    def _listens(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True

    def kill(self, name: str) -> None:
        """Kill a service with SIGKILL."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> int:
        """End both with SIGTERM; return the highest exit code."""
        running = [process for process in self.processes.values() if process.poll() is None]
        for process in running:
            process.terminate()
        codes = [abs(process.wait(timeout=900)) for process in running]
        lines = [line for name in self.processes for line in self.lines(name)]
        self._tpms.close()
        shutil.rmtree(self.directory)
        require_lines(lines)
        return max(codes, default=0)

    # ---- what it holds

    @property
    def socket(self) -> Path:
        """The key service's socket."""
        return self.directory / "key-service.sock"

    @property
    def policy_socket(self) -> Path:
        """The key service's socket for root."""
        return self.directory / "key-service-policy.sock"

    @property
    def state(self) -> Path:
        """The key service's directory on disk."""
        return self.directory / "state"

    @property
    def kubernetes(self) -> Path:
        """Replaces /etc/kubernetes: the files for another control plane; empty until a test writes them."""
        return self.directory / "kubernetes"

    @property
    def endpoint(self) -> str:
        """The address for nodes."""
        return f"127.0.0.1:{self.port}"

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the log of a service, one entry per line."""
        text = (self.directory / f"{name}.log").read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def last_refusal(self, name: str = "key") -> dict[str, Any]:
        """Return the last line with a refusal."""
        return [line for line in self.lines(name) if line.get("outcome") == "refused"][-1]

    def memory(self, name: str) -> bytes:
        """Return the readable memory of the process."""
        pid = self.processes[name].pid
        found = []
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                span, mode, *_unused = line.split()
                first, last = (int(end, 16) for end in span.split("-"))
                if "r" not in mode or line.endswith(("[vvar]", "[vvar_vclock]", "[vsyscall]")):
                    continue
                try:
                    memory.seek(first)
                    found.append(memory.read(last - first))
                except OSError:
                    continue  # a device mapping, or removed meanwhile
        return b"\n".join(found)

    def cpu_seconds(self, name: str) -> float:
        """Return the CPU time of the process."""
        fields = Path(f"/proc/{self.processes[name].pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self, name: str) -> int:
        """Return the memory of the process."""
        fields = Path(f"/proc/{self.processes[name].pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    # ---- making it

    def _prepare(self) -> None:
        opened = self.directory / "key-service"
        opened.mkdir(mode=0o700)
        (opened / "keys").write_bytes(self.bundle.to_bytes())
        runtime = self.directory / "join"
        runtime.mkdir(mode=0o700)
        if os.getuid() == 0:
            entry = pwd.getpwnam(self.join_user)
            os.chown(runtime, entry.pw_uid, entry.pw_gid)
        self._configure(
            "key",
            node_name=self.name,
            api_server=self.api.server,
            api_endpoint="api.bed.example:6443",
            join_user=self.join_user,
            cluster_ca_certificate=str(self.api.directory / "ca.crt"),
            cluster_ca_key=str(self.api.directory / "ca.key"),
            kubernetes_directory=str(self.kubernetes),
            runtime_directory=str(opened),
            state_directory=str(self.state),
            socket=str(self.socket),
            policy_socket=str(self.policy_socket),
            tcti=self.swtpm.tcti,
            tpm_lock_directory=str(opened),
            audit_directory=str(self.directory / "audit"),
            metrics=True,
            tickets_per_second=1000.0,  # a test requests tickets for the same machine repeatedly
            ticket_burst=1000,
        )
        self.configure_join(**MANY_CONNECTIONS)

    def configure_join(self, **limits: float) -> None:
        """Write the join service's configuration; limits for one address besides ``limits`` are never reached."""
        self._configure(
            "join",
            listen_address="127.0.0.1",
            listen_port=self.port,
            key_service_socket=str(self.socket),
            runtime_directory=str(self.directory / "join"),
            refusal_floor_seconds=0.05,
            metrics_port=self.metrics_port,
            challenges_per_second=1000.0,  # all machines of a test share one address
            challenge_burst=1000,
            **limits,
        )

    def _configure(self, name: str, **entries: object) -> None:
        path = self.directory / f"{name}.yml"
        path.write_text(json.dumps(entries))
        path.chmod(0o644)

    def _spawn(self, name: str, user: str) -> None:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
        words = [sys.executable, run_service.__file__, name, user, str(self.directory / f"{name}.yml"), *self._pace]
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ
            )

    def _wait(self, name: str, answers: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                if answers():
                    return
            except Exception as error:
                log = (self.directory / f"{name}.log").read_text()[-2000:]
                if self.processes[name].poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{name} service: {log}") from error
            time.sleep(0.05)


@contextmanager
def another_user(uid: int = 1) -> Iterator[None]:
    """Set another effective user for this process, which is root: the user that SO_PEERCRED (unix(7)) shows.

    A fork has no threads of gRPC, and Python may wait for them forever.
    """
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """The changes of one exchange; none by default.

    ``fields`` of the request message, ``csr_name``: another node's; ``exporter``: another session's; ``challenge`` as
    the machine receives it, ``bound`` as it is sent, ``sent``: the request's bytes after the quote; ``other``: a TPM
    whose AK is shown with our EK.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    csr_name: str = ""
    exporter: bytes = b""
    challenge: Callable[[Challenge], Challenge] = _same
    bound: Callable[[BoundEvidence], BoundEvidence] = _same
    sent: Callable[[bytes], bytes] = _same
    other: SoftTpm | None = None

    @property
    def ak(self) -> Any:
        """The other TPM's AK."""
        return self.other.ak.public if self.other else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """An answered exchange, for reuse by a test."""

    answer: Answer
    response: bytes
    exporter: bytes


@dataclass(slots=True)
class Machine:
    """One machine: a test attester with a recorded boot, its memory, and the data of its cluster."""

    name: str
    bed: ServiceBed
    directory: Path
    boot: boots.Boot = field(default_factory=lambda: boots.load(GOOD_BOOT))
    tpm: SoftTpm = field(init=False)
    disk_id: str = ""

    def __post_init__(self) -> None:
        """Boot the machine."""
        self.tpm = SoftTpm(self.boot.pcrs)
        self.directory.mkdir(parents=True, exist_ok=True)

    @property
    def store(self) -> TicketStore:
        """Its ticket store."""
        return TicketStore(self.directory / "tickets", require_memory=lambda directory: None)

    @property
    def machine(self) -> JoinMachine:
        """The request of the join client."""
        attester = Attester(tpm=self.tpm, ek=self.tpm.ek, ak=self.tpm.ak)
        return JoinMachine(attester=attester, read_logs=self.logs, store=self.store, clock=SystemClock())

    def config(self, **changes: Any) -> JoinConfig:
        """Return the data of the machine before its request."""
        known = {
            "endpoints": (self.bed.endpoint,),
            "pins": JoinCaPins.from_pem(self.bed.bundle.join_ca_certificate),
            "cluster_id": self.bed.bundle.cluster_id,
            "node_name": self.name,
            "disk_id": self.disk_id,
        }
        return JoinConfig(**{**known, **changes})

    def logs(self) -> EventLogs:
        """Return its present event logs."""
        path = NodeLockPaths(directory=self.directory).log
        return logs_of(self.boot, nodelock=path.read_bytes() if path.exists() else b"")

    def ask(self, **changes: Any) -> TicketMaterial:
        """Request a ticket like the join client."""
        return asyncio.run(request_ticket(self.bed.endpoint, self.config(**changes), self.machine))

    def reattest(self) -> datetime:
        """Push fresh evidence like the timer; return when the next push is overdue."""
        return asyncio.run(reattest(self.bed.endpoint, self.config(), self.machine))

    def attack(self, attack: Attack) -> Exchanged:
        """Request a ticket by hand, with one change."""
        return asyncio.run(self._attack(attack))

    async def _attack(self, attack: Attack) -> Exchanged:
        config, asked = self.config(), self.machine
        issuer = DoorkeeperIssuer(asked.attester)
        async with connect(
            self.bed.endpoint, pins=config.pins, cluster_id=config.cluster_id, issuer=issuer
        ) as connection:
            first = ChallengeRequest(ek_public=self.tpm.ek.public, ak_public=attack.ak or self.tpm.ak.public)
            challenge = Challenge.parse(await call(connection, CHALLENGE, first.to_bytes()))
            message = message_class("join.IssueJoinTicketRequest")(
                certificate_request=kubelet_request(self.store.kubelet_key(), attack.csr_name or self.name),
                event_logs=self.logs().to_bytes(),
                **attack.fields,
            )
            request = message.SerializeToString()
            context = BindingContext(
                purpose=Purpose.JOIN,
                cluster_id=config.cluster_id,
                request=request,
                exporter=attack.exporter or connection.exporter,
                spki_sha256=connection.spki_sha256,
            )
            given = self._answered(attack.challenge(challenge), context, attack)
            bound = attack.bound(given.bound)
            sent = attack.sent(request)
            response = await call(connection, ISSUE_JOIN_TICKET, sent, ((BINDING_METADATA, bound.to_bytes()),))
            return Exchanged(answer=given, response=response, exporter=connection.exporter)

    def _answered(self, challenge: Challenge, context: BindingContext, attack: Attack) -> Answer:
        given = self.tpm
        if attack.other is not None:  # the TPM would refuse the credential, so the proof is a guess
            key, proof = OneTimeKey.generate(), b"guess" * 6 + b"!!"
            binding = exchange_digest(challenge, context, proof=proof, hpke_public=key.public)
            evidence = issue(attack.other, attack.other.ak, qualifying_data=binding, pcrs=challenge.selection)
            bound = BoundEvidence(
                challenge_id=challenge.id,
                evidence=evidence,
                hpke_public=key.public,
                proof=proof,
                event_logs_sha256=self.logs().digest(),
            )
            return Answer(bound=bound, one_time_key=key, binding=binding, secret=bytes(32))
        return answer(given, challenge, context, ek=given.ek, ak=given.ak, logs=self.logs())

    def lock(self) -> None:
        """Take the node lock."""
        userspace = self.directory / "tpm2-measure.log"
        userspace.write_bytes(self.boot.userspace)
        paths = NodeLockPaths(directory=self.directory, userspace_log=userspace)
        NodeLock(self.tpm, paths=paths).acquire(self.bed.bundle.cluster_id)

    def enroll(self, *, name: str | None = None, role: Role = Role.WORKER, **spec: Any) -> None:
        """Write its identity and the profile of the good boot to the API, like the site."""
        document = render_identity(identity_of(self.tpm.ek, name or self.name, role))
        document["spec"] |= spec
        if document["spec"]["admission"] == "Revoked":
            document["metadata"]["labels"] = {REVOKED_LABEL: "true"}
        self.bed.api.apply(document, render_profile(learned(boots.load(GOOD_BOOT))))

    def identity(self) -> dict[str, Any]:
        """Return its present identity in the API."""
        name = identity_of(self.tpm.ek).name
        return self.bed.api.get("nodeidentities.attested-kubernetes.dev", name)
