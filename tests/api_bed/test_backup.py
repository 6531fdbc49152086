# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups of a real etcd with TLS: saved, proven by another etcd, fetched as an admin does, and never in clear."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from ansible_collections.attested.kubernetes.plugins.action.etcd_backup import ActionModule
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import make_identity
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.etcd_archive import unpack
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import ClusterFile, render
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult, SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import failure_of
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.backups import newest_backup
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_tools import EtcdTools
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.node.etcd_snapshot import (
    ControlPlane,
    keep_backup,
    save,
)
from ansible_collections.attested.kubernetes.tests.support.api_bed import binaries, why_not
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch, spellings
from ansible_collections.attested.kubernetes.tests.support.etcd_bed import EtcdBed, etcd_bed
from ansible_collections.attested.kubernetes.tests.support.kits import missing_for_age

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes

CANARY = "never-to-be-seen-5f1d7a"
CLUSTER = bytes(range(32))
KEYS = {
    "/registry/namespaces/kube-system": "k8s",
    "/registry/attested-kubernetes.dev/attestationpolicies/cluster": '{"spec": {"generation": 3}}',
    "/registry/secrets/default/one": CANARY,
}


class Programs(SystemRunner):
    """The real ones, from the cache of the bundle; what they are told and say is kept."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
        if argv[0] == "kubeadm":
            return CommandResult(argv=tuple(argv), returncode=0, stdout=b"v1.35.4\n", stderr=b"")
        done = super().run([str(binaries() / argv[0]), *argv[1:]], **options)
        self.seen += [" ".join(argv).encode(), done.stdout, done.stderr]
        return done

    def started(self, argv: Sequence[str]) -> Any:
        self.seen.append(" ".join(argv).encode())
        return super().started([str(binaries() / argv[0]), *argv[1:]])


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdBed]:
    """One member with a few objects of a cluster."""
    if reason := why_not() or missing_for_age():
        pytest.skip(reason)
    with etcd_bed(tmp_path_factory.mktemp("etcd"), "cp-1") as bed:
        for kind in ("crt", "key"):
            shutil.copy(bed.directory / f"member.{kind}", bed.directory / f"server.{kind}")
        for key, value in KEYS.items():
            bed.etcdctl("cp-1", "put", key, value)
        yield bed


@pytest.fixture
def plane(etcd: EtcdBed, tmp_path: Path) -> ControlPlane:
    """The control plane of that member, below a directory."""
    root = tmp_path / "root"
    pki = root / "etc/kubernetes/pki"
    (pki / "etcd").mkdir(parents=True)
    for name in ("ca.crt", "etcd/ca.crt", "front-proxy-ca.crt"):
        shutil.copy(etcd.directory / "ca.crt", pki / name)
    (root / "var/lib/etcd").mkdir(parents=True)
    runner = Programs()
    tools = EtcdTools(
        runner=runner,
        starter=runner,
        clock=SystemClock(),
        certificates=etcd.directory,
        endpoint=etcd.members["cp-1"].client_url,
    )
    config: Any = SimpleNamespace(name="cp-1", cluster_id=CLUSTER)
    return ControlPlane(
        config=config, tools=tools, runner=runner, clock=SystemClock(), paths=KubernetesPaths(root=root)
    )


@pytest.fixture(scope="module")
def keys() -> tuple[SecretBytes, str]:
    return make_identity()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    root.mkdir()
    (root / "hosts.yml").write_text("nodes: {}\n")
    pem = b"-----BEGIN CERTIFICATE-----\n"
    facts = ClusterFile(cluster_id=CLUSTER, measurement_salt=bytes(32), join_ca=pem, policy_key=pem)
    (root / "cluster.yml").write_bytes(render(facts))
    return root


class Backup(ActionModule):
    """The action as an admin's machine runs it; the module of the node works in this process."""

    plane: ControlPlane
    folders: ClassVar[list[Path]] = []
    """What was made on the node for a file on its way."""

    def execute(self, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        assert module == "attested.kubernetes.etcd_snapshot"
        try:
            return save(self.plane, arguments, bool(self._task.check_mode)).values
        except AttestedError as error:
            return {"failed": True} | failure_of(error)

    def _low_level_execute_command(self, cmd: str, **_options: Any) -> dict[str, Any]:  # type: ignore[override]
        done = subprocess.run(shlex.split(cmd), capture_output=True, text=True, check=False)
        if cmd.startswith("mktemp"):
            self.folders.append(Path(done.stdout.strip()))
        return {"rc": done.returncode, "stdout": done.stdout}


def fetch(one: str, other: str) -> None:
    shutil.copy(one, other)


def act(plane: ControlPlane, site: Path, recipient: str, *, check_mode: bool = False, **options: Any) -> dict[str, Any]:
    known = {"async_val": 0, "check_mode": check_mode, "diff": True, "environment": None, "action": "etcd_backup"}
    args = {"site": str(site), "directory": str(site / "backups"), "recipients": [recipient], **options}
    connection = SimpleNamespace(transport="ssh", _shell=SimpleNamespace(tmpdir=None), fetch_file=fetch)
    task, become = SimpleNamespace(args=args, **known), SimpleNamespace(become=False)
    action = Backup(task, connection, become, loader=None, templar=None, shared_loader_obj=None)
    action.plane = plane
    answer: dict[str, Any] = action.run(task_vars={})
    return answer


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_backup_is_proven_and_fetched_and_nothing_of_it_shows(
    plane: ControlPlane, site: Path, keys: tuple[SecretBytes, str], tmp_path: Path
) -> None:
    with ProcessWatch() as watch:
        answer = act(plane, site, keys[1])
        processes = b"\n".join(data for _channel, data in watch.seen())
    assert answer.get("reason") is None, answer
    path = Path(answer["path"])
    assert path.parent == site / "backups"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with (tmp_path / "snapshot.db").open("wb") as out:
        manifest = unpack(path, out, [keys[0]], begin=lambda one: one.require_cluster(CLUSTER, plane.authorities()))
    assert manifest.values() == answer["manifest"]
    assert (manifest.policy_generation, manifest.node, manifest.kubernetes_version) == (3, "cp-1", "1.35.4")
    assert CANARY.encode() in (tmp_path / "snapshot.db").read_bytes()  # the canary is where it belongs
    assert isinstance(plane.runner, Programs)
    told = [json.dumps(answer).encode(), processes, path.read_bytes(), *plane.runner.seen]
    assert [needle for needle in spellings(CANARY.encode()) if any(needle in one for one in told)] == []
    assert files(plane.data) == []
    assert Backup.folders
    assert [path for path in Backup.folders if path.exists()] == []


def test_check_mode_writes_nothing_and_says_what_would_go(
    plane: ControlPlane, site: Path, keys: tuple[SecretBytes, str]
) -> None:
    (site / "backups").mkdir()
    old = ["etcd-20200101T000000Z.age", "etcd-20200102T000000Z.age"]
    for name in (*old, "etcd-of-mine.age", "notes"):
        (site / "backups" / name).touch()
    before = files(site)
    foreseen = act(plane, site, keys[1], check_mode=True, keep=2)
    assert (foreseen["changed"], foreseen["removed"]) == (True, old[:1])
    assert files(site) == before
    done = act(plane, site, keys[1], keep=2)
    assert done["removed"] == foreseen["removed"]
    left = {path.name for path in (site / "backups").iterdir()}
    assert left == {old[1], Path(done["path"]).name, "etcd-of-mine.age", "notes"}


def test_a_control_plane_keeps_its_newest_backups(
    plane: ControlPlane, keys: tuple[SecretBytes, str], tmp_path: Path
) -> None:
    """As the timer does; a backup that fails removes nothing and leaves nothing."""
    directory = tmp_path / "backups"
    assert newest_backup(directory) == 0.0
    directory.mkdir()
    old = ["etcd-20200101T000000Z.age", "etcd-20200102T000000Z.age"]
    for name in (*old, "etcd-of-mine.age"):
        (directory / name).touch()
        os.utime(directory / name, (0, 0))
    with pytest.raises(AttestedError, match="recipient"):
        keep_backup(plane, directory, ["age1qqqq"], keep=2)
    assert files(directory) == sorted((*old, "etcd-of-mine.age"))
    manifest, removed = keep_backup(plane, directory, [keys[1]], keep=2)
    assert removed == (old[0],)
    assert files(directory) == sorted((old[1], manifest.file_name, "etcd-of-mine.age"))
    assert newest_backup(directory) == (directory / manifest.file_name).stat().st_mtime > 0
    with (tmp_path / "snapshot.db").open("wb") as out:
        path = directory / manifest.file_name
        assert unpack(path, out, [keys[0]], begin=lambda one: one.require_cluster(CLUSTER)) == manifest


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param({"recipients": []}, "KIT_KEY_UNUSABLE", id="no recipient"),
        pytest.param({"recipients": ["age1qqqq"]}, "KIT_KEY_UNUSABLE", id="a recipient that is none"),
        pytest.param({"keep": 0}, "OPTION_INVALID", id="keep nothing"),
        pytest.param({"directory": "/proc/backups"}, "FILE_UNUSABLE", id="a directory that cannot be"),
    ],
)
def test_what_cannot_be_is_refused(
    options: dict[str, Any], code: str, plane: ControlPlane, site: Path, keys: tuple[SecretBytes, str]
) -> None:
    before = files(site)
    answer = act(plane, site, keys[1], **options)
    assert answer["reason"] == code
    assert files(site) == before
    assert files(plane.data) == []


def test_a_backup_of_another_cluster_is_not_kept(
    plane: ControlPlane, site: Path, keys: tuple[SecretBytes, str]
) -> None:
    config: Any = SimpleNamespace(name="cp-1", cluster_id=bytes(32))
    other = ControlPlane(config=config, tools=plane.tools, runner=plane.runner, clock=plane.clock, paths=plane.paths)
    assert act(other, site, keys[1])["reason"] == "BACKUP_OTHER_CLUSTER"
    assert not (site / "backups").exists()


def test_a_file_that_does_not_arrive_whole_is_not_kept(
    plane: ControlPlane, site: Path, keys: tuple[SecretBytes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(one: str, other: str) -> None:
        data = Path(one).read_bytes()
        Path(other).write_bytes(data[: len(data) // 2])

    monkeypatch.setattr(shutil, "copy", half)
    assert act(plane, site, keys[1])["reason"] == "BACKUP_DAMAGED"
    assert list((site / "backups").iterdir()) == []


def test_a_cluster_that_is_none_is_not_backed_up(
    plane: ControlPlane, site: Path, keys: tuple[SecretBytes, str], etcd: EtcdBed
) -> None:
    key = "/registry/namespaces/kube-system"
    etcd.etcdctl("cp-1", "del", key)
    try:
        assert act(plane, site, keys[1])["reason"] == "BACKUP_UNPROVEN"
    finally:
        etcd.etcdctl("cp-1", "put", key, KEYS[key])
    assert files(plane.data) == []
