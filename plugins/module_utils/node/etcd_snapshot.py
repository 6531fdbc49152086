# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module `etcd_snapshot` on a control plane: back up etcd, and restore etcd from a backup.

`attested-agent backup` writes the same backups into a directory of the control plane; a timer may run it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..admin.age_file import require_recipients
from ..admin.etcd_archive import Manifest, digest_of, pack, surplus, unpack
from ..core.command import SystemRunner
from ..core.files import make_directory, read_bytes, remove
from ..core.host import SystemClock
from ..errors import ApiError, AttestedError, EtcdError, SystemFault
from ..keyservice.backups import BACKUPS
from ..keyservice.master import SecretBytes
from ..kubeadm.ca_files import split
from ..kubeadm.certificate_table import API_SERVER, AUTHORITIES, ETCD
from ..kubeadm.etcd_client import LOCAL
from ..kubeadm.etcd_tools import BUMP, EtcdTools, Member, clear, empty
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths
from ..kubeadm.static_pods import StaticPods
from ..reasons import Reason
from ..result import Diff, Result
from .answers import open_box
from .config import DEFAULT_PATH, load_node_config
from .run_record import BACKUP, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.command import Runner
    from ..core.host import Clock
    from .config import NodeConfig

CERTIFICATES = "/etc/kubernetes/pki/etcd"
COMPONENTS = (API_SERVER, ETCD)
"""The static Pods that a restore stops, in this order."""

_WORLD_READABLE = 0o644
"""The file is encrypted, and the user of the ssh connection, which may not be root, fetches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """This control plane: its configuration, its programs, and the paths of its files."""

    config: NodeConfig
    tools: EtcdTools
    runner: Runner
    clock: Clock
    paths: KubernetesPaths = field(default_factory=KubernetesPaths)

    @classmethod
    def here(cls, node_config: str, *, certificates: str = CERTIFICATES, endpoint: str = LOCAL) -> ControlPlane:
        """Return the control plane that this program runs on."""
        runner, clock = SystemRunner(), SystemClock()
        tools = EtcdTools(
            runner=runner, starter=runner, clock=clock, certificates=Path(certificates), endpoint=endpoint
        )
        return cls(config=load_node_config(node_config), tools=tools, runner=runner, clock=clock)

    @property
    def data(self) -> Path:
        """The directory of etcd, on the state disk if the machine has one."""
        return self.paths.root / "var/lib/etcd"

    def authorities(self) -> dict[str, list[str]]:
        """Return the names of the keys of each CA that this control plane trusts; raises AUTHORITY_UNUSABLE."""
        return {name: sorted(split(read_bytes(self.paths.root / path))) for name, path in AUTHORITIES.items()}

    def kubernetes_version(self) -> str:
        """Return the version of the installed kubeadm, which is the version of the cluster."""
        output = self.runner.run(["kubeadm", "version", "--output=short"]).stdout.decode("ascii", "replace")
        return output.strip().removeprefix("v")


def run(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Write a backup, restore one, or stop a control plane that a restore left behind.

    Raises as these functions.
    """
    plane = ControlPlane.here(params["node_config"], certificates=params["certificates"], endpoint=params["endpoint"])
    if params["state"] == "stopped":
        return stop(plane, check_mode)
    return (save if params["state"] == "saved" else restore)(plane, params, check_mode)


def save(plane: ControlPlane, params: Mapping[str, Any], check_mode: bool) -> Result:
    """Save a snapshot, prove that etcd starts from it, and encrypt it with its manifest to ``path``."""
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
        target.chmod(_WORLD_READABLE)
    finally:
        clear(work)
    values = {"manifest": manifest.values(), "file_sha256": digest}
    return Result(changed=True, values=values, diff=Diff(before="", after=f"{manifest.file_name}\n", header="backups"))


# Backups that a control plane takes by itself. They are encrypted, so their directory need not be on the state disk.


def main(argv: Sequence[str] | None = None) -> int:
    """Run `attested-agent backup`; return 0, or 1 with the error on standard error."""
    options = _parser().parse_args(argv)
    try:
        with RunRecord(BACKUP, clock=SystemClock()).kept():
            plane = ControlPlane.here(options.config)
            manifest, removed = keep_backup(plane, options.directory, options.recipient, keep=options.keep)
    except AttestedError as error:
        sys.stderr.write(f"attested-agent backup: {error.code}: {error}\n{error.hint}\n")
        return 1
    sys.stdout.write(
        f"saved {options.directory / manifest.file_name}: revision {manifest.revision}, "
        f"generation {manifest.policy_generation} of the policy, {manifest.size} bytes\n"
    )
    sys.stdout.writelines(f"removed {options.directory / name}\n" for name in removed)
    return 0


def keep_backup(
    plane: ControlPlane, directory: Path, recipients: Sequence[str], *, keep: int
) -> tuple[Manifest, tuple[str, ...]]:
    """Write a backup atomically into ``directory``, and keep only the ``keep`` newest (at least one).

    Return its manifest and the names of the removed backups. Raises as `save`; then no older backup is removed.
    """
    make_directory(directory, mode=0o700)
    part = directory / ".part"
    try:
        values = save(plane, {"path": str(part), "recipients": recipients}, check_mode=False).values["manifest"]
        manifest = Manifest(**{name: value for name, value in values.items() if name != "format"})
        part.replace(directory / manifest.file_name)
    finally:
        remove(part)
    removed = surplus([path.name for path in directory.iterdir()], keep=max(1, keep))
    for name in removed:
        remove(directory / name)
    return manifest, removed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attested-agent backup",
        description="Save a snapshot of this control plane's etcd, start another etcd from it, and keep it, encrypted.",
    )
    parser.add_argument("--recipient", action="append", required=True, metavar="age1...", help="recipient; repeatable")
    parser.add_argument("--directory", type=Path, default=BACKUPS, help="backup directory (default: %(default)s)")
    parser.add_argument("--keep", type=int, default=7, metavar="N", help="backups to keep (default: %(default)s)")
    parser.add_argument("--config", default=DEFAULT_PATH, metavar="FILE", help="node.yml (default: %(default)s)")
    return parser


# A restore. The earlier data are kept until the API server answers. An interrupted run is repeated from its beginning.


def restore(
    plane: ControlPlane,
    params: Mapping[str, Any],
    check_mode: bool,
    *,
    open_identity: Callable[[Mapping[str, Any]], bytes] = open_box,
) -> Result:
    """Make a one-member etcd from the backup at ``path``, which the sealed identity decrypts.

    1. A healthy etcd is replaced only if this is confirmed (RESTORE_CLUSTER_HEALTHY). 2. The kubelet runs, because it
    stops and starts the static Pods (KUBELET_NOT_RUNNING). 3. The backup is whole and of this cluster (BACKUP_DAMAGED,
    BACKUP_OTHER_CLUSTER). 4. An etcd started from it answers (BACKUP_UNPROVEN). Only then are the Pods stopped.
    """
    require_replaceable(healthy=plane.tools.gateway.is_healthy(), confirmed=params["confirm_healthy"])  # 1
    machine = Machine(runner=plane.runner, clock=plane.clock, paths=plane.paths)
    machine.kubelet.require_active()  # 2
    if check_mode:
        return Result(changed=True, values={"manifest": {}})
    pods = StaticPods(machine, node=plane.config.name, reader=_NoPods())
    work = plane.data / "attested-restore"
    try:
        manifest = _make_data(plane, params, work, SecretBytes(open_identity(params)), _member(pods))  # 3, 4
    except BaseException:
        clear(work / "new")  # a snapshot in clear; data that an earlier run kept stay
        raise
    pods.stop(COMPONENTS)
    exchange(plane.data / "member", work / "new/data/member", kept=work / "before")
    for component in reversed(COMPONENTS):
        pods.start(component)
    clear(work)
    return Result(changed=True, values={"manifest": manifest.values()})


def stop(plane: ControlPlane, check_mode: bool) -> Result:
    """Stop etcd and the API server of a control plane whose data do not belong to the restored cluster."""
    running = [one for one in COMPONENTS if (plane.paths.kubernetes / "manifests" / f"{one}.yaml").exists()]
    if running and not check_mode:
        machine = Machine(runner=plane.runner, clock=plane.clock, paths=plane.paths)
        StaticPods(machine, node=plane.config.name, reader=_NoPods()).stop(running)
    return Result(changed=bool(running), values={"manifest": {}})


def require_replaceable(*, healthy: bool, confirmed: bool) -> None:
    """Raise RESTORE_CLUSTER_HEALTHY if etcd is healthy and its replacement is not confirmed."""
    if healthy and not confirmed:
        raise EtcdError(
            "expected an etcd that has lost its data or its quorum, this one is healthy",
            reason=Reason.RESTORE_CLUSTER_HEALTHY,
        )


def exchange(member: Path, new: Path, *, kept: Path) -> None:
    """Replace ``member`` with ``new``; move the earlier data to ``kept``, unless data are already there."""
    try:
        if member.exists():
            if kept.exists():
                shutil.rmtree(member)
            else:
                member.replace(kept)
        new.replace(member)
    except OSError as error:
        raise SystemFault(f"cannot replace {member}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _make_data(
    plane: ControlPlane, params: Mapping[str, Any], work: Path, identity: SecretBytes, member: Member
) -> Manifest:
    new, authorities = empty(work / "new"), plane.authorities()
    snapshot = new / "snapshot.db"
    try:
        snapshot.touch(mode=0o600)
        with snapshot.open("wb") as out:
            manifest = unpack(
                Path(params["path"]),
                out,
                [identity],
                begin=lambda one: one.require_cluster(plane.config.cluster_id, authorities),
            )
    except OSError as error:
        raise SystemFault(f"cannot write {snapshot}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    plane.tools.prove(snapshot, new / "scratch", least=manifest.revision)
    plane.tools.restore(snapshot, new / "data", member, f"--bump-revision={BUMP}", "--mark-compacted")
    return manifest


def _member(pods: StaticPods) -> Member:
    found = pods.arguments(ETCD)
    try:
        return Member(name=found["name"], peer_url=found["initial-advertise-peer-urls"])
    except KeyError as error:
        raise EtcdError(
            f"expected {error} in the manifest of etcd", reason=Reason.CONTROL_PLANE_MANIFEST_MALFORMED
        ) from error


class _NoPods:
    """A reader of Pods that always fails, because the API server is being restored."""

    def pod(self, _namespace: str, _name: str) -> None:
        raise ApiError("the API server is being restored", reason=Reason.API_UNREACHABLE)
