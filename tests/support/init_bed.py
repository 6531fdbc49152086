# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that waits for init, an admin who initializes it, and a founder that tests control."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa, make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle, make_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import (
    SecretBytes,
    generate_master_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import make_admin_key, prove_admin
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_client import Wish
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_handler import Desk
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import InitOrder, Success
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_service import (
    InitServiceConfig,
    init_network_side,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Question, Received, judge
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_socket import (
    Begin,
    init_port,
    init_service,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_exchange import Testimony
from ansible_collections.attested.kubernetes.plugins.module_utils.services.witness import Facts
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of, learned, logs_of
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.two_processes import both_running

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import AdminKey
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_handler import JobReporter
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_front import NetworkSide
    from ansible_collections.attested.kubernetes.tests.support.two_processes import Running

EXPORTER, SPKI = b"e" * 32, b"k" * 32
KUBECONFIG = b"apiVersion: v1\nkind: Config\n"


def make_keys(ca: JoinCa | None = None) -> tuple[JoinCa, KeyBundle]:
    """Return a join CA and the keys of a new cluster."""
    ours = ca or make_join_ca("prod", now=SystemClock().now())
    bundle = make_bundle(
        master=generate_master_secret(SystemRandom()),
        measurement_salt=SystemRandom().token(32),
        join_ca_key=SecretBytes(ours.private_key),
        join_ca_certificate=ours.certificate,
        policy_key=b"-----BEGIN PUBLIC KEY-----\n",
    )
    return ours, bundle


@dataclass
class Founding:
    """A founder that records its calls; ``acts`` run in order, one per call, the last one repeats."""

    acts: list[Callable[[JobReporter], None]] = field(default_factory=list)
    founded: list[tuple[InitOrder, KeyBundle, str, Mapping[int, bytes]]] = field(default_factory=list)
    kubeconfig: Callable[[InitOrder], bytes] = lambda _order: KUBECONFIG

    def found(
        self, order: InitOrder, bundle: KeyBundle, *, digest: str, judged: Mapping[int, bytes], reporter: JobReporter
    ) -> Success:
        """Run the act, then report that the cluster exists."""
        self.founded.append((order, bundle, digest, judged))
        reporter.step("Make the cluster", "Set up the control plane")
        if self.acts:
            act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
            act(reporter)
        return Success(kubeconfig=self.kubeconfig(order), cluster_id=bundle.cluster_id)


class Waiting:
    """An act that ends when the test releases it."""

    def __init__(self) -> None:
        """Wait."""
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, _reporter: JobReporter) -> None:
        """Signal the start, and wait."""
        self.begun.set()
        assert self.go_on.wait(timeout=60)


def failing(error: AttestedError, *lines: str) -> Callable[[JobReporter], None]:
    """Return an act that fails with these last lines."""

    def act(reporter: JobReporter) -> None:
        for line in lines:
            reporter.line(line)
        raise error

    return act


@dataclass
class InitBed:
    """One machine with a desk, and one admin."""

    founding: Founding = field(default_factory=Founding)
    boot: boots.Boot = field(default_factory=lambda: boots.load("deb13-base"))
    clock: Any = field(default_factory=SystemClock)
    attester: Any = None
    keys: tuple[JoinCa, KeyBundle] | None = None

    def __post_init__(self) -> None:
        """Boot the machine and create the keys of the site."""
        if self.attester is None:
            tpm = SoftTpm(self.boot.pcrs)
            self.attester = lambda: nullcontext(Attester(tpm=tpm, ek=tpm.ek, ak=tpm.ak))
        self.logs: EventLogs = logs_of(self.boot)
        self.ca, self.bundle = self.keys or make_keys()
        self.cluster_id = self.bundle.cluster_id
        self.admin: AdminKey = make_admin_key(ca=self.ca, cluster_id=self.cluster_id, now=self.clock.now())
        self.desk = Desk(
            attester=self.attester,
            facts=self.facts,
            pins=JoinCaPins.from_pem(self.ca.certificate),
            founder=self.founding,
            clock=self.clock,
            random=SystemRandom(),
        )

    def facts(self) -> Facts:
        """Return the machine's own data."""
        return Facts(cluster_id=self.cluster_id, logs=self.logs)

    def question(self, **changes: Any) -> Question:
        """Return the question of the admin, from a site that enrolled this machine as cp-1."""
        with self.attester() as one:
            identities = [identity_of(one.ek, "cp-1", changes.pop("role", Role.CONTROL_PLANE))]
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

    def judged(self, *, exporter: bytes = EXPORTER) -> VerifiedNode:
        """Request evidence of the desk, and verify it."""
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
            purpose=Purpose.INIT,
        )
        self.challenge_id = challenge.id
        return judge(received, question, node="cp-1")

    def order(self, verified: VerifiedNode, *, bundle: KeyBundle | None = None, **changes: Any) -> InitOrder:
        """Return a valid order for the verified machine."""
        order = InitOrder(
            cluster_name="prod",
            kubernetes_version="1.35.4",
            service_cidr="10.96.0.0/16",
            measurement_salt=self.bundle.measurement_salt,
            challenge_id=self.challenge_id,
            sealed=verified.machine.seal((bundle or self.bundle).to_bytes()),
            extra_sans=("api.example.org",),
        )
        return replace(order, **changes)

    def asked(self, order: InitOrder, verified: VerifiedNode, **changes: Any) -> Begin:
        """Return the request of the admin as received from the network side."""
        request = order.to_bytes()
        known: dict[str, Any] = {
            "request": request,
            "admin_proof": prove_admin(self.admin, binding=verified.machine.binding, request=request),
            "exporter": EXPORTER,
            "spki_sha256": SPKI,
            "source": "192.0.2.1",
            **changes,
        }
        return Begin(**known)

    def begun(self, **changes: Any) -> bytes:
        """Run all steps up to a handle; ``changes`` are of the order."""
        verified = self.judged()
        return self.desk.begin(self.asked(self.order(verified, **changes), verified))

    def followed(self, handle: bytes) -> list[bytes]:
        """Return all output of the job."""
        received: list[bytes] = []
        ended = False
        while not ended:
            more, ended = self.desk.follow(handle, len(received), wait_seconds=30)
            received += more
        return received

    def wish(self, **changes: Any) -> Wish:
        """Return the admin's request for cp-1; ``changes`` are of the order."""
        order = InitOrder(
            cluster_name="prod",
            kubernetes_version="1.35.4",
            service_cidr="10.96.0.0/16",
            measurement_salt=self.bundle.measurement_salt,
            challenge_id=b"",
            sealed=b"",
        )
        return Wish(order=replace(order, **changes), bundle=self.bundle, admin=self.admin, node="cp-1")


def _front(socket: Path, settings: dict[str, Any], **parts: Any) -> NetworkSide:
    config = InitServiceConfig(bootstrapper_socket=socket, **settings)
    return init_network_side(config, port=init_port(socket), **parts)


def running(bed: InitBed, **settings: Any) -> AbstractAsyncContextManager[Running]:
    """Run desk and init service, joined by their real unix socket, until the block ends."""
    return both_running(lambda log: init_service(bed.desk, log=log), _front, settings)
