# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A locked node that waits for recovery, an admin with the keys, and an opener that tests control."""

from __future__ import annotations

import subprocess
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.disk import gateway
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import make_admin_key, prove_admin
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Question, Received, judge
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_socket import (
    Begin,
    recovery_port,
    recovery_service,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_client import (
    ClusterKeys,
    LockedNode,
    Rescuer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_handler import (
    Contest,
    HelperTrial,
    Locked,
    RecoveryDesk,
    Unlocking,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_messages import (
    RecoverOrder,
    RecoverySecrets,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_service import (
    RecoveryServiceConfig,
    recovery_network_side,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_exchange import Testimony
from ansible_collections.attested.kubernetes.plugins.module_utils.services.witness import Facts
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import open_sealed
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of, learned, logs_of
from ansible_collections.attested.kubernetes.tests.support.init_bed import make_keys
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.two_processes import both_running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_front import NetworkSide
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_handler import Offer, Trial
    from ansible_collections.attested.kubernetes.tests.support.two_processes import Running

EXPORTER, SPKI = b"e" * 32, b"k" * 32
DISK = DiskId("81111111-2222-4333-8444-555555555555")
OTHER_DISK = DiskId("91111111-2222-4333-8444-555555555555")


@dataclass
class Opening:
    """An opener that reads the key like the real one, and runs the acts of the test; the last act repeats."""

    acts: list[Callable[[], None]] = field(default_factory=list)
    opened: list[bytes] = field(default_factory=list)

    def open(self, key_file: Path) -> None:
        """Run the act, then read the key."""
        if self.acts:
            act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
            act()
        self.opened.append(key_file.read_bytes())


@dataclass
class Records:
    """An audit log in memory."""

    told: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)
    broken: bool = False

    def decided(
        self,
        event: str,
        fields: Mapping[str, object],
        *,
        refusal: Mapping[str, object] | None = None,
        source: str = "",
    ) -> None:
        """Record an event."""
        if self.broken:
            raise Refusal("expected room for a record", reason=Reason.AUDIT_UNWRITABLE)
        self.told.append((event, str((refusal or {}).get("reason", "given")), dict(fields)))
        assert source == fields.get("admin", "") or not refusal  # the proven admin, empty before the proof

    @property
    def outcomes(self) -> list[str]:
        """Return the reason of each entry, or that the key was given."""
        return [outcome for _event, outcome, _fields in self.told]


class TrialInHere:
    """The trial of unit tests, without process and cryptsetup; ``right`` is the only valid key."""

    def __init__(self, directory: Path, right: RecoverySecrets) -> None:
        """Write keys below ``directory``."""
        self._directory = directory
        self._right = right
        self._lock = threading.Lock()
        self.tries = 0

    @contextmanager
    def tried(self, offer: Offer) -> Iterator[Path]:
        """Open the box and compare."""
        data = open_sealed(offer.box, secret=offer.secret, binding=offer.binding, one_time_key=offer.one_time_key)
        found = RecoverySecrets.from_bytes(data)
        if found.disk != self._right.disk:
            raise Refusal("expected another disk", reason=Reason.RECOVERY_DISK_DIFFERS)
        if found.disk_key != self._right.disk_key:
            raise Refusal("expected another key", reason=Reason.RECOVERY_KEY_WRONG)
        with self._lock:
            self.tries += 1
            path = self._directory / f"key-{self.tries}"
        path.write_bytes(found.disk_key.reveal())
        try:
            yield path
        finally:
            path.unlink()


@dataclass
class RecoveryBed:
    """One locked node with a desk, and one admin with the keys of its cluster."""

    directory: Path
    opening: Opening = field(default_factory=Opening)
    records: Records = field(default_factory=Records)
    contest: Contest = field(default_factory=Contest)
    boot: boots.Boot = field(default_factory=lambda: boots.load("deb13-base"))
    clock: Any = field(default_factory=SystemClock)
    attester: Any = None
    keys: tuple[JoinCa, KeyBundle] | None = None
    device: Path | None = None
    disk: DiskId = DISK
    program: str = "ansible_collections.attested.kubernetes.tests.support.plain_key_process"

    def __post_init__(self) -> None:
        """Boot the machine and create the keys of the site."""
        if self.attester is None:
            tpm = SoftTpm(self.boot.pcrs)
            self.attester = lambda: nullcontext(Attester(tpm=tpm, ek=tpm.ek, ak=tpm.ak))
        self.ca, self.bundle = self.keys or make_keys()
        self.cluster_id = self.bundle.cluster_id
        self.admin = make_admin_key(ca=self.ca, cluster_id=self.cluster_id, now=self.clock.now())
        self.cluster = ClusterKeys.of_bundle(self.bundle)
        self.right = self.cluster.of_node(self.disk)
        self.unlocking = Unlocking(self._trial(), self.opening, self.contest)
        self.desk = RecoveryDesk(
            attester=self.attester,
            facts=self.facts,
            pins=JoinCaPins.from_pem(self.ca.certificate),
            unlocking=self.unlocking,
            record=self.records,
            clock=self.clock,
        )

    def _trial(self) -> Trial:
        if self.device is None:
            return TrialInHere(self.directory, self.right)
        locked = Locked(
            device=str(self.device), disk=self.disk, cluster_id=self.cluster_id, memory=self.directory / "memory"
        )
        return HelperTrial(locked, program=self.program)

    def facts(self) -> Facts:
        """Return the machine's own data."""
        return Facts(cluster_id=self.cluster_id, logs=logs_of(self.boot))

    def question(self, **changes: Any) -> Question:
        """Return the question of the admin, from a site that enrolled this machine as w-1."""
        with self.attester() as one:
            identities = [identity_of(one.ek, changes.pop("name", "w-1"), Role.WORKER)]
        policy = SitePolicy(profiles=[learned(changes.pop("boot", self.boot))], identities=identities)
        known: dict[str, Any] = {
            "cluster_id": self.cluster_id,
            "policy": policy,
            "demands": Demands(),
            "clock": SystemClock(),
            "random": SystemRandom(),
            **changes,
        }
        return Question(**known)

    def judged(self, *, exporter: bytes = EXPORTER) -> tuple[VerifiedNode, bytes]:
        """Request evidence of the desk and verify it; return the node and the id of the exchange."""
        question = self.question()
        challenge, record = question.challenge(ChallengeRequest.parse(self.desk.identity()))
        said = self.desk.testimony(challenge.to_bytes(), exporter=exporter, spki_sha256=SPKI)
        received = Received(
            record=record,
            challenge=challenge.to_bytes(),
            testimony=Testimony.parse(said),
            exporter=exporter,
            spki_sha256=SPKI,
            now=SystemClock().now(),
            purpose=Purpose.RECOVER,
        )
        return judge(received, question, node="w-1"), challenge.id

    def proof(self, verified: VerifiedNode, request: bytes, **changes: Any) -> bytes:
        """Return the admin's proof for a request on the exchange of ``verified``."""
        known = {"purpose": Purpose.RECOVER, **changes}
        return prove_admin(known.pop("admin", self.admin), binding=verified.machine.binding, request=request, **known)

    def asked(self, *, secrets: RecoverySecrets | None = None, **changes: Any) -> Begin:
        """Return a valid request of the admin from the network side; ``changes`` are of it or its proof."""
        verified, challenge_id = self.judged()
        order = RecoverOrder(
            challenge_id=challenge_id,
            measurement_salt=self.bundle.measurement_salt,
            sealed=verified.machine.seal((secrets or self.right).to_bytes()),
        )
        request = order.to_bytes()
        proven = {name: changes.pop(name) for name in ("admin", "purpose") if name in changes}
        known: dict[str, Any] = {
            "request": request,
            "admin_proof": self.proof(verified, request, **proven),
            "exporter": EXPORTER,
            "spki_sha256": SPKI,
            "source": "192.0.2.1",
            **changes,
        }
        return Begin(**known)

    def offer(self, secrets: RecoverySecrets | None = None) -> Offer:
        """Return the cluster's box for this machine: for a separate exchange."""
        asked = self.asked(secrets=secrets)
        return self.desk._admitted(asked).offer

    def rescuer(self, **changes: Any) -> Rescuer:
        """Return the admin with all data of a recovery; ``changes`` are of the question."""
        keys = changes.pop("keys", self.cluster)
        admin = changes.pop("admin", self.admin)
        return Rescuer(admin=admin, keys=keys, question=self.question(**changes))

    def node(self, endpoint: str, *, name: str = "w-1", disk: DiskId = DISK) -> LockedNode:
        """Return this node in the form of the admin's site."""
        return LockedNode(name=name, endpoint=endpoint, role="worker", disk=disk)


def format_plain(path: Path, secrets: RecoverySecrets) -> None:
    """Make ``path`` a state disk in use with the key of ``secrets``, by our commands, without integrity."""
    with path.open("wb") as stream:
        stream.truncate(20 << 20)
    words = list(gateway.format_disk(str(path), uuid=secrets.disk.uuid))
    for name in ("--integrity", "--progress-frequency"):
        del words[words.index(name) : words.index(name) + 2]
    words.remove("--progress-json")
    subprocess.run(words, input=secrets.disk_key.reveal(), capture_output=True, check=True)
    token = gateway.token_bytes(initialised=True)
    subprocess.run(gateway.write_token(str(path), replace=False), input=token, capture_output=True, check=True)


def _front(socket: Path, settings: dict[str, Any], **parts: Any) -> NetworkSide:
    config = RecoveryServiceConfig(recovery_socket=socket, **settings)
    return recovery_network_side(config, port=recovery_port(socket), **parts)


def running(bed: RecoveryBed, **settings: Any) -> AbstractAsyncContextManager[Running]:
    """Run desk and recovery service, joined by their real unix socket, until the block ends."""
    return both_running(lambda log: recovery_service(bed.desk, log=log), _front, settings)
