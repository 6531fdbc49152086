# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with its verification service in this process: real sockets and TLS, with any TPM."""

from __future__ import annotations

import io
import json
import os
import tempfile
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import Notifier
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import with_lock
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Question
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_socket import (
    witness_port,
    witness_service,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_service import (
    VerificationNetworkSide,
    VerificationServiceConfig,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.witness import Facts, Witness
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import Health
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import SocketServer
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import CLUSTER_ID, identity_of, learned, logs_of
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractContextManager

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs


@dataclass(slots=True)
class SoftNode:
    """A node with a test attester, booted and locked to the cluster unless a test changes it."""

    boot: boots.Boot = field(default_factory=lambda: boots.load("deb13-base"))
    cluster_id: bytes = CLUSTER_ID
    locked_to: bytes | None = CLUSTER_ID
    tpm: SoftTpm = field(init=False)
    logs: EventLogs = field(init=False)

    def __post_init__(self) -> None:
        """Boot and lock the node."""
        self.tpm = SoftTpm(self.boot.pcrs)
        self.logs = logs_of(self.boot)
        if self.locked_to is not None:
            self.tpm.pcr_event(15, self.locked_to)
            self.logs = replace(self.logs, nodelock=lock_log(self.locked_to))

    @contextmanager
    def attester(self) -> Iterator[Attester]:
        """Open the TPM."""
        yield Attester(tpm=self.tpm, ek=self.tpm.ek, ak=self.tpm.ak)

    def witness(self, **changes: Any) -> Witness:
        """Return the node's witness."""
        known = {"attester": self.attester, "facts": self.facts, "clock": SystemClock(), **changes}
        return Witness(**known)

    def facts(self) -> Facts:
        """Return the node's own data."""
        return Facts(cluster_id=self.cluster_id, logs=self.logs)

    def policy(self, *, name: str = "w-1", boot: str = "deb13-base") -> SitePolicy:
        """Return the policy of a site that enrolled the node as ``name``."""
        return SitePolicy(profiles=[learned(boots.load(boot))], identities=[identity_of(self.tpm.ek, name)])


def lock_log(cluster_id: bytes) -> bytes:
    """Return the node lock's log after a lock."""
    return with_lock(b"", register=15, cluster_id=cluster_id)


def question(policy: SitePolicy, **changes: Any) -> Question:
    """Return the admin's question for all nodes."""
    known: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "policy": policy,
        "demands": Demands(),
        "clock": SystemClock(),
        "random": SystemRandom(),
        **changes,
    }
    return Question(**known)


@dataclass
class NodeBed:
    """A running verification service."""

    port: int
    directory: Path
    stream: io.StringIO
    health: Health
    constellation_port: int | None = None

    @property
    def endpoint(self) -> str:
        """The address of the service."""
        return f"127.0.0.1:{self.port}"

    def lines(self) -> list[dict[str, Any]]:
        """Return the log of both services, one entry per line."""
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def reasons(self) -> list[str]:
        """Return the reasons of all refusals so far."""
        return [line["reason"] for line in self.lines() if line.get("outcome") == "refused"]


@asynccontextmanager
async def running_node(
    attester: Callable[[], AbstractContextManager[Attester]],
    facts: Callable[[], Facts],
    *,
    witness_permits: bool = False,
    **settings: Any,
) -> AsyncIterator[NodeBed]:
    """Run witness and verification service, joined by their real unix socket, until the block ends.

    ``witness_permits``: the witness also answers in Constellation's form.
    """
    with tempfile.TemporaryDirectory(prefix="vb-") as name:
        directory, stream = Path(name), io.StringIO()
        log = Log(stream, as_json=True, clock=SystemClock())
        made = Witness(
            attester=attester, facts=facts, clock=SystemClock(), insecure_constellation_verify=witness_permits
        )
        witness = witness_service(made, log=log)
        socket = SocketServer(
            directory / "witness.sock",
            handler=witness.handle,
            allowed=frozenset({os.getuid()}),
            group=os.getgid(),
            refused=lambda _uid: None,
            stranger=Reason.CALLER_UNKNOWN,
        )
        config = VerificationServiceConfig(
            listen_address="127.0.0.1",
            listen_port=0,
            witness_socket=directory / "witness.sock",
            runtime_directory=directory,
            **settings,
        )
        health = Health(Notifier({}), version="test", parts=("listener", "witness"))
        front = VerificationNetworkSide(
            config, witness=witness_port(config.witness_socket), health=health, log=log, clock=SystemClock()
        )
        await socket.start()
        try:
            port = await front.start()
            yield NodeBed(port, directory, stream, health, front.constellation_port)
        finally:
            await front.stop()
            await socket.stop()
            witness.close()
