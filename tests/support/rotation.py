# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control planes for the rotation of the key for Secrets: separate files, real API servers, one real etcd.

A clock replaces the kubelet: waiting for an API server restarts it with the arguments of its manifest.
"""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api_server import (
    ApiServer,
    with_encryption_file,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import (
    PlaneEncryption,
    rewrite,
    survey,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_client import (
    EtcdCredentials,
    EtcdGateway,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.kubectl import Kubectl
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import encryption_path
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.encryption_key import (
    FoundKeys,
    RotationPhase,
    plan_rotation,
)
from ansible_collections.attested.kubernetes.tests.support.api_bed import binaries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
    from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.encryption_key import RotationPlan
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

_MANIFEST = """apiVersion: v1
kind: Pod
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address=127.0.0.1
    - --secure-port={port}
    volumeMounts:
    - mountPath: {mount}
      name: attested
"""


class Pinned(SystemRunner):
    """Run the kubectl of the bed, which is not on this machine's path."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout_seconds: float = 60,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Run ``argv`` with the bed's program in place of the first word."""
        words = [str(binaries() / argv[0]), *argv[1:]]
        return super().run(words, stdin=stdin, timeout_seconds=timeout_seconds, env=env, check=check)


@dataclass(slots=True)
class Restarting:
    """A clock whose sleep restarts the API server, as for a changed manifest or file."""

    restart: Callable[[], None]

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Restart the API server."""
        del seconds
        self.restart()


@dataclass(slots=True)
class Plane:
    """One control plane: directory, name of its API server's process in the bed, and its address."""

    bed: ApiBed
    name: str
    process: str
    server: str
    paths: KubernetesPaths
    restarts: int = 0

    @classmethod
    def make(cls, bed: ApiBed, name: str, *, process: str, server: str) -> Plane:
        """Write its manifest without encryption."""
        plane = cls(bed, name, process, server, KubernetesPaths(root=bed.directory / name))
        plane.manifest.parent.mkdir(parents=True)
        mount = plane.paths.kubernetes / "attested"
        plane.manifest.write_text(_MANIFEST.format(port=server.rpartition(":")[2], mount=mount))
        return plane

    @property
    def manifest(self) -> Path:
        """The manifest of its static pod."""
        return self.paths.kubernetes / "manifests/kube-apiserver.yaml"

    @property
    def encryption(self) -> PlaneEncryption:
        """Our code for this control plane, new at each access, as for each task."""
        server = ApiServer(self.paths, kubectl(self.bed), clock=Restarting(self.restart))
        return PlaneEncryption(self.paths, server)

    @classmethod
    def join(cls, bed: ApiBed, name: str, *, of: Plane) -> Plane:
        """Create another control plane with the file of ``of``, as a ticket provides it."""
        paths = KubernetesPaths(root=bed.directory / name)
        place = encryption_path(paths)
        place.parent.mkdir(parents=True)
        place.write_bytes(encryption_path(of.paths).read_bytes())
        server = bed.add_server(name, {"encryption-provider-config": str(place)})
        plane = cls.make(bed, name, process=name, server=server)
        plane.manifest.write_text(with_encryption_file(plane.manifest.read_text(), paths))
        return plane

    def restart(self) -> None:
        """Restart its API server with the arguments of the manifest, instead of a minute for the file reload."""
        lines = [line.strip().removeprefix("- ") for line in self.manifest.read_text().splitlines()]
        said = [line for line in lines if line.startswith("--encryption-provider-config")]
        kept = [word for word in self.bed.commands[self.process] if not word.startswith("--encryption-provider")]
        self.bed.commands[self.process] = [*kept, *said]
        self.bed.restart_server(self.process, self.server)
        self.restarts += 1


def kubectl(bed: ApiBed) -> Kubectl:
    """Return our kubectl with the bed's admin."""
    path = bed.directory / "admin.conf"
    user = {"client-certificate": str(bed.directory / "admin.crt"), "client-key": str(bed.directory / "admin.key")}
    cluster = {"server": bed.server, "certificate-authority": str(bed.directory / "ca.crt")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bed", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "admin", "context": {"cluster": "bed", "user": "admin"}}],
        "current-context": "admin",
    }
    path.write_text(json.dumps(document))
    return Kubectl(Pinned(), kubeconfig=path)


class PlainEtcd(EtcdGateway):
    """Reader of the etcd of an API bed, which has no TLS."""

    def _connect(self, address: str, timeout_seconds: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(address, timeout=timeout_seconds)


@dataclass(slots=True)
class Rotation:
    """The phases of the playbook; each phase begins with an inspection, like a separate run."""

    bed: ApiBed
    planes: dict[str, Plane]
    phases: list[str] = field(default_factory=list)

    @property
    def etcd(self) -> EtcdGateway:
        """The etcd, with our module's code."""
        address = next(word for word in self.bed.commands["etcd"] if word.startswith("--listen-client-urls="))
        return PlainEtcd(address.partition("=")[2], EtcdCredentials.below(self.bed.directory))

    def plan(self, old: str) -> RotationPlan:
        """Inspect, and return what remains."""
        found = FoundKeys(
            planes=[plane.encryption.observe(name=plane.name) for plane in self.planes.values()],
            members=frozenset(self.planes),
            stored=survey(self.etcd).counts,
        )
        return plan_rotation(found, old=old)

    def step(self, old: str, *, half: bool = False) -> bool:
        """Run the first remaining phase; with ``half``, the first time only on the last control plane."""
        plan = self.plan(old)
        if not plan.phases:
            return False
        is_cut = half and plan.phases[0].value not in self.phases
        self.phases.append(plan.phases[0].value)
        if plan.phases[0] is RotationPhase.MAKE:
            self.planes[plan.source].encryption.make(random=SystemRandom())
        elif plan.phases[0] is RotationPhase.REWRITE:
            rewrite(self.etcd, kubectl(self.bed), key=plan.successor, most=10)
        else:
            for name in sorted(plan.orders)[-1 if is_cut else 0 :]:
                self.place(plan, name)
        return True

    def place(self, plan: RotationPlan, name: str) -> None:
        """Write the file of one control plane, with missing keys from another one."""
        given = self.planes[plan.source].encryption.give(plan.missing[name]) if name in plan.missing else {}
        encryption = self.planes[name].encryption
        encryption.place(encryption.arrange(plan.orders[name], given=given), kubectl(self.bed))
