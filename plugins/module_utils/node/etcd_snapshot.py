# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module `etcd_snapshot` does on a control plane: a backup of etcd, proven and encrypted before it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..admin.age_file import require_recipients
from ..admin.etcd_archive import Manifest, digest_of, pack
from ..core.command import SystemRunner
from ..core.files import read_bytes
from ..core.host import SystemClock
from ..kubeadm.ca_keypairs import split
from ..kubeadm.etcd_tools import EtcdTools, clear, empty
from ..kubeadm.spec import KubernetesPaths
from ..result import Diff, Result
from .config import load_node_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.command import Runner
    from ..core.host import Clock
    from .config import NodeConfig

_AUTHORITIES = {"ca": "ca.crt", "etcd-ca": "etcd/ca.crt", "front-proxy-ca": "front-proxy-ca.crt"}
_FETCHED_BY_ANYBODY = 0o644
"""It is encrypted, and the user of the connection, who may not be root, fetches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """The machine: its configuration, its programs, and where its files lie."""

    config: NodeConfig
    tools: EtcdTools
    runner: Runner
    clock: Clock
    paths: KubernetesPaths = field(default_factory=KubernetesPaths)

    @classmethod
    def of_a_module(cls, params: Mapping[str, Any]) -> ControlPlane:
        """Return the one that the module runs on."""
        runner, clock = SystemRunner(), SystemClock()
        tools = EtcdTools(
            runner=runner,
            starter=runner,
            clock=clock,
            certificates=Path(params["certificates"]),
            endpoint=params["endpoint"],
        )
        return cls(config=load_node_config(params["node_config"]), tools=tools, runner=runner, clock=clock)

    @property
    def data(self) -> Path:
        """The directory of etcd, on the state disk where there is one."""
        return self.paths.root / "var/lib/etcd"

    def authorities(self) -> dict[str, list[str]]:
        """Return the names of the keys of each CA that this control plane trusts; raises AUTHORITY_UNUSABLE."""
        pki = self.paths.kubernetes / "pki"
        return {name: sorted(split(read_bytes(pki / path))) for name, path in _AUTHORITIES.items()}

    def kubernetes_version(self) -> str:
        """Return the version of the installed kubeadm, which is that of the cluster."""
        said = self.runner.run(["kubeadm", "version", "--output=short"]).stdout.decode("ascii", "replace")
        return said.strip().removeprefix("v")


def run(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Write a backup; raises its refusals."""
    return save(ControlPlane.of_a_module(params), params, check_mode)


def save(plane: ControlPlane, params: Mapping[str, Any], check_mode: bool) -> Result:
    """Save a snapshot, prove it, and encrypt it with its manifest into the file ``path``."""
    require_recipients(params["recipients"])
    authorities = plane.authorities()
    if check_mode:
        return Result(changed=True, values={"manifest": {}, "file_sha256": ""})
    target, work = Path(params["path"]), empty(plane.data / "attested-backup")
    try:
        snapshot = work / "snapshot.db"
        before = plane.tools.save(snapshot)
        proven = plane.tools.prove(snapshot, work / "scratch", least=before)
        manifest = Manifest(
            taken=f"{plane.clock.now():%Y-%m-%dT%H:%M:%SZ}",
            node=plane.config.name,
            cluster_id=plane.config.cluster_id.hex(),
            policy_generation=proven.policy_generation,
            revision=proven.revision,
            kubernetes_version=plane.kubernetes_version(),
            authorities=authorities,
            size=snapshot.stat().st_size,
            sha256=digest_of(snapshot),
        )
        digest = pack(manifest, snapshot, target, params["recipients"])
        target.chmod(_FETCHED_BY_ANYBODY)
    finally:
        clear(work)
    values = {"manifest": manifest.values(), "file_sha256": digest}
    return Result(changed=True, values=values, diff=Diff(before="", after=f"{manifest.file_name}\n", header="backups"))
