# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots of etcd with its own programs: save, prove with a scratch etcd, and restore a snapshot.

An unencrypted snapshot is stored only in etcd's own directory, next to the data that it copies.
"""

from __future__ import annotations

import shutil
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..core.files import make_directory
from ..errors import EtcdError, SystemFault
from ..reasons import Reason
from .etcd_client import EtcdCredentials, EtcdGateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ..core.command import Runner, Starter
    from ..core.host import Clock

BUMP = 1_000_000_000
"""The amount by which a restore raises the revision: no client can have seen a higher revision."""

_SECONDS = 1800.0
_START_SECONDS = 120.0
_PAUSE_SECONDS = 0.2
_POLICY = b"/registry/attested-kubernetes.dev/attestationpolicies/cluster"
_CLUSTER = b"/registry/namespaces/kube-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """The revision and the policy generation that a scratch etcd returned from a snapshot."""

    revision: int
    policy_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The only member of a restored cluster: its name and its advertised peer URL."""

    name: str
    peer_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdTools:
    """Runs etcd, etcdctl and etcdutl of this machine.

    ``certificates`` is a directory such as kubeadm's pki/etcd.
    """

    runner: Runner
    starter: Starter
    clock: Clock
    certificates: Path
    endpoint: str

    @property
    def gateway(self) -> EtcdGateway:
        """The client of this machine's member."""
        return EtcdGateway(self.endpoint, self._credentials)

    def save(self, target: Path) -> int:
        """Write a snapshot of this member to ``target`` and return the member's revision before the snapshot.

        Raises ETCD_MEMBER_UNHEALTHY if the member does not answer or has no quorum: its data may be old.
        """
        if not self.gateway.is_healthy():
            raise EtcdError(
                f"expected the etcd member at {self.endpoint} to be healthy, it is not",
                reason=Reason.ETCD_MEMBER_UNHEALTHY,
            )
        before = self.gateway.revision()
        of = self._credentials
        words = [f"--endpoints={self.endpoint}", f"--cacert={of.ca}", f"--cert={of.certificate}", f"--key={of.key}"]
        self.runner.run(["etcdctl", *words, "snapshot", "save", str(target)], timeout_seconds=_SECONDS)
        target.chmod(0o600)
        return before

    def restore(self, snapshot: Path, data: Path, member: Member, *options: str) -> None:
        """Make the data of a one-member cluster from a snapshot; etcdutl checks its digest.

        Raises COMMAND_FAILED.
        """
        words = [
            f"--data-dir={data}",
            f"--name={member.name}",
            f"--initial-cluster={member.name}={member.peer_url}",
            f"--initial-advertise-peer-urls={member.peer_url}",
            *options,
        ]
        self.runner.run(["etcdutl", "snapshot", "restore", str(snapshot), *words], timeout_seconds=_SECONDS)

    def prove(self, snapshot: Path, scratch: Path, *, least: int) -> Proven:
        """Start a scratch etcd from the snapshot and return what it answers; raises BACKUP_UNPROVEN.

        1. The snapshot is complete, and not older than revision ``least``. 2. A cluster can be restored from it. 3. The
        cluster answers at the snapshot's revision or a later one. 4. It holds a Kubernetes cluster.
        """
        try:
            revision = self._revision(snapshot)
            if revision < least:  # 1
                raise _unproven(f"revision {least} or a later one in the snapshot, got {revision}")
            member = Member(name="scratch", peer_url=f"https://127.0.0.1:{_free_port()}")
            client_url = f"https://127.0.0.1:{_free_port()}"
            self.restore(snapshot, scratch, member)  # 2
            with self.starter.started(self._server(scratch, member, client_url)):
                return self._answers(EtcdGateway(client_url, self._credentials), revision)  # 3, 4
        except SystemFault as error:
            if error.reason is Reason.COMMAND_MISSING:
                raise
            raise _unproven(f"a snapshot that etcd accepts: {error.message}") from error

    def _revision(self, snapshot: Path) -> int:
        status = self.runner.run(
            ["etcdutl", "snapshot", "status", str(snapshot), "--write-out=json"], timeout_seconds=_SECONDS
        )
        try:
            return int(load_json(status.stdout)["revision"])
        except (KeyError, TypeError, ValueError):
            raise _unproven("a revision in the status of the snapshot") from None

    def _answers(self, gateway: EtcdGateway, least: int) -> Proven:
        revision = wait(self.clock, gateway.revision, seconds=_START_SECONDS)
        if revision is None or revision < least:
            raise _unproven(f"an etcd from the snapshot that answers at revision {least}, got {revision}")
        if not dict(_one(gateway, _CLUSTER)):
            raise _unproven(f"the key {_CLUSTER.decode()} in the snapshot")
        policy = dict(_one(gateway, _POLICY)).get(_POLICY)
        return Proven(revision=revision, policy_generation=0 if policy is None else _generation(policy))

    def _server(self, data: Path, member: Member, client_url: str) -> list[str]:
        """Return the command of an etcd on loopback that accepts only clients with a certificate of etcd's CA."""
        d = self.certificates
        return [
            "etcd",
            f"--name={member.name}",
            f"--data-dir={data}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={member.peer_url}",
            f"--initial-advertise-peer-urls={member.peer_url}",
            f"--initial-cluster={member.name}={member.peer_url}",
            *(f"--{kind}trusted-ca-file={d / 'ca.crt'}" for kind in ("", "peer-")),
            *(f"--{kind}cert-file={d / 'server.crt'}" for kind in ("", "peer-")),
            *(f"--{kind}key-file={d / 'server.key'}" for kind in ("", "peer-")),
            "--client-cert-auth",
            "--peer-client-cert-auth",
            "--unsafe-no-fsync",
            "--log-level=error",
        ]

    @property
    def _credentials(self) -> EtcdCredentials:
        return EtcdCredentials.below(self.certificates)


def wait(clock: Clock, read: Callable[[], int], *, seconds: float) -> int | None:
    """Return the result of ``read`` when etcd answers, or None if it does not within ``seconds``."""
    deadline = clock.monotonic() + seconds
    while True:
        try:
            return read()
        except EtcdError:
            if clock.monotonic() > deadline:
                return None
            clock.sleep(_PAUSE_SECONDS)


def empty(directory: Path) -> Path:
    """Make ``directory`` empty and accessible by root only, and return it; raises FILE_UNUSABLE."""
    clear(directory)
    make_directory(directory, mode=0o700)
    return directory


def clear(directory: Path) -> None:
    """Remove ``directory`` and its content; raises FILE_UNUSABLE."""
    try:
        if directory.exists():
            shutil.rmtree(directory)
    except OSError as error:
        raise SystemFault(f"cannot remove {directory}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _one(gateway: EtcdGateway, key: bytes) -> Iterator[tuple[bytes, bytes]]:
    return gateway.pages(key, key + b"\0")


def _generation(policy: bytes) -> int:
    try:
        document: Any = load_json(policy)
        return int(document["spec"]["generation"])
    except (KeyError, TypeError, ValueError):
        raise _unproven("a policy with a generation in the snapshot") from None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _unproven(expected: str) -> EtcdError:
    return EtcdError(f"expected {expected}", reason=Reason.BACKUP_UNPROVEN)
