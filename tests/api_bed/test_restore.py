# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real etcd of three members loses two, and one comes back from a backup; what is refused stops nothing.

What a kubelet does with manifests of static pods a thread does here; the API server is a program that says that it is
ready.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import make_identity
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.etcd_archive import hand_on
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_tools import BUMP, EtcdTools
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.node.etcd_snapshot import (
    ControlPlane,
    restore,
    save,
    stop,
)
from ansible_collections.attested.kubernetes.tests.api_bed.test_backup import CANARY, CLUSTER, KEYS, Programs
from ansible_collections.attested.kubernetes.tests.support.api_bed import Authority, why_not
from ansible_collections.attested.kubernetes.tests.support.etcd_bed import EtcdBed, etcd_bed
from ansible_collections.attested.kubernetes.tests.support.kits import missing_for_age
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

COMPONENTS = ("etcd", "kube-apiserver")


class Machine(Programs):
    """Programs of a machine whose kubelet runs."""

    def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
        if argv[0] == "systemctl":
            return CommandResult(argv=tuple(argv), returncode=0, stdout=b"", stderr=b"")
        return super().run(argv, **options)


class Kubelet:
    """Runs what the manifests in ``kubernetes``/manifests say, and ends what they no longer say."""

    def __init__(self, kubernetes: Path) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._manifests = kubernetes / "manifests"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        self._ends.set()
        self._thread.join()
        for process in self.running.values():
            process.kill()
            process.wait()

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self.running.items()}

    def _follow(self) -> None:
        while not self._ends.wait(0.1):
            for name in COMPONENTS:
                path, process = self._manifests / f"{name}.yaml", self.running.get(name)
                if path.exists() and process is None:
                    command = yaml.safe_load(path.read_text())["spec"]["containers"][0]["command"]
                    self.running[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                elif process is not None and not path.exists():
                    process.terminate()
                    process.wait()
                    del self.running[name]


class Bed:
    """A control plane cp-1 below a directory, whose etcd is one of three real members, and a backup of it."""

    def __init__(self, etcd: EtcdBed, root: Path) -> None:
        self.etcd, self.root = etcd, root
        self.paths = KubernetesPaths(root=root)
        self.identity, self.recipient = make_identity()
        self.before: dict[str, Any] = {}
        pki = self.paths.kubernetes / "pki"
        (pki / "etcd").mkdir(parents=True)
        for name in ("ca.crt", "etcd/ca.crt", "front-proxy-ca.crt"):
            shutil.copy(etcd.directory / "ca.crt", pki / name)
        (root / "proc").symlink_to("/proc")
        etcd.kill("cp-1")
        (root / "var/lib").mkdir(parents=True)
        (etcd.directory / "cp-1").rename(root / "var/lib/etcd")
        self._write_manifests()
        self.kubelet = Kubelet(self.paths.kubernetes)

    @property
    def plane(self) -> ControlPlane:
        runner = Machine()
        tools = EtcdTools(
            runner=runner,
            starter=runner,
            clock=SystemClock(),
            certificates=self.etcd.directory,
            endpoint=self.etcd.members["cp-1"].client_url,
        )
        config: Any = SimpleNamespace(name="cp-1", cluster_id=CLUSTER)
        return ControlPlane(config=config, tools=tools, runner=runner, clock=SystemClock(), paths=self.paths)

    @property
    def backup(self) -> Path:
        return self.root / "backup.age"

    def take_backup(self) -> dict[str, Any]:
        params = {"path": str(self.backup), "recipients": [self.recipient]}
        return dict(save(self.plane, params, check_mode=False).values["manifest"])

    def restore(
        self, path: Path | None = None, *, plane: ControlPlane | None = None, check_mode: bool = False, **options: Any
    ) -> dict[str, Any]:
        params = {"path": str(path or self.backup), "confirm_healthy": False, **options}
        done = restore(plane or self.plane, params, check_mode, open_identity=lambda _params: self.identity.reveal())
        return dict(done.values["manifest"])

    def get(self, key: str, *options: str) -> str:
        return self.etcd.etcdctl("cp-1", "get", key, "--print-value-only", *options, check=False).strip()

    def _write_manifests(self) -> None:
        process = self.etcd.members["cp-1"].running
        assert process is not None
        words = [str(word) for word in process.args if not str(word).startswith("--data-dir")]  # type: ignore[union-attr]
        health, ready = free_port(), free_port()
        words += [f"--data-dir={self.root / 'var/lib/etcd'}", f"--listen-metrics-urls=http://127.0.0.1:{health}"]
        server = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(self.root), str(ready)]
        manifests = self.paths.kubernetes / "manifests"
        manifests.mkdir()
        for name, command, port, path in (("etcd", words, health, "/readyz"), ("kube-apiserver", server, ready, "/")):
            probe = {"httpGet": {"scheme": "HTTP", "host": "127.0.0.1", "port": port, "path": path}}
            container = {"name": name, "command": command, "readinessProbe": probe}
            pod = {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
            (manifests / f"{name}.yaml").write_text(yaml.safe_dump(pod))


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Three members, a backup, an object that came after it."""
    if reason := why_not() or missing_for_age():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("restore")
    (directory / "etcd").mkdir()
    with etcd_bed(directory / "etcd", "cp-1", "cp-2", "cp-3") as etcd:
        for kind in ("crt", "key"):
            shutil.copy(etcd.directory / f"member.{kind}", etcd.directory / f"server.{kind}")
        (directory / "root").mkdir()
        made = Bed(etcd, directory / "root")
        with made.kubelet:
            etcd.wait_healthy("cp-1", asked="cp-1")
            for key, value in KEYS.items():
                etcd.etcdctl("cp-1", "put", key, value)
            made.before = made.take_backup()
            etcd.etcdctl("cp-1", "put", "/registry/secrets/default/late", "after the backup")
            yield made


def code_of(work: Any) -> str:
    with pytest.raises(AttestedError) as caught:
        work()
    assert CANARY not in str(caught.value)
    return caught.value.code


def altered(bed: Bed, change: Any) -> Path:
    path = bed.root / "altered.age"
    path.write_bytes(change(bed.backup.read_bytes()))
    return path


def other_keys(bed: Bed) -> Path:
    """Return the backup as it is sent to another machine."""
    path = bed.root / "others.age"
    hand_on(bed.backup, path, [bed.identity], begin=lambda _manifest: None)
    return path


def with_another_ca(bed: Bed) -> ControlPlane:
    root = bed.root / "other"
    if not root.exists():
        shutil.copytree(bed.paths.kubernetes, root / "etc/kubernetes")
        (root / "var/lib/etcd").mkdir(parents=True)
        new = root / "new"
        new.mkdir()
        Authority.make(new)
        shutil.copy(new / "ca.crt", root / "etc/kubernetes/pki/ca.crt")
    return replace(bed.plane, paths=KubernetesPaths(root=root))


def of_another_cluster(bed: Bed) -> ControlPlane:
    config: Any = SimpleNamespace(name="cp-1", cluster_id=bytes(32))
    return replace(bed.plane, config=config)


def test_a_healthy_etcd_is_replaced_by_nobody_who_does_not_say_so(bed: Bed) -> None:
    pids = bed.kubelet.pids()
    assert code_of(bed.restore) == "RESTORE_CLUSTER_HEALTHY"
    assert code_of(lambda: bed.restore(check_mode=True)) == "RESTORE_CLUSTER_HEALTHY"
    assert bed.restore(check_mode=True, confirm_healthy=True) == {}
    assert bed.kubelet.pids() == pids
    assert bed.get("/registry/secrets/default/late") == "after the backup"


@pytest.mark.parametrize(
    ("path", "plane", "code"),
    [
        pytest.param(lambda bed: altered(bed, lambda data: data[:-1]), None, "BACKUP_DAMAGED", id="cut off"),
        pytest.param(
            lambda bed: altered(bed, lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]),
            None,
            "BACKUP_DAMAGED",
            id="one bit",
        ),
        pytest.param(other_keys, None, "KIT_KEY_WRONG", id="sent to another machine"),
        pytest.param(lambda bed: bed.root / "none.age", None, "FILE_UNUSABLE", id="no file"),
        pytest.param(lambda bed: bed.backup, of_another_cluster, "BACKUP_OTHER_CLUSTER", id="another cluster"),
        pytest.param(lambda bed: bed.backup, with_another_ca, "BACKUP_OTHER_CLUSTER", id="another CA"),
    ],
)
def test_what_is_refused_stops_nothing(path: Any, plane: Any, code: str, bed: Bed) -> None:
    pids = bed.kubelet.pids()
    assert code_of(lambda: bed.restore(path(bed), plane=plane and plane(bed), confirm_healthy=True)) == code
    assert bed.kubelet.pids() == pids
    assert bed.get("/registry/secrets/default/late") == "after the backup"
    assert not (bed.paths.kubernetes / "stopped").exists()
    assert not (bed.paths.root / "var/lib/etcd/attested-restore/new").exists()


def test_one_member_comes_back_when_the_other_two_are_lost(bed: Bed) -> None:
    revision = bed.before["revision"]
    for name in ("cp-2", "cp-3"):
        bed.etcd.kill(name)
    wait_for(lambda: not bed.plane.tools.gateway.is_healthy())
    assert bed.restore() == bed.before
    assert [one.name for one in bed.plane.tools.gateway.members()] == ["cp-1"]
    assert {key: bed.get(key) for key in KEYS} == KEYS
    assert bed.get("/registry/secrets/default/late") == ""
    assert bed.plane.tools.gateway.revision() >= revision + BUMP
    assert bed.get("/registry/namespaces/kube-system", f"--rev={revision}") == ""  # compacted: a watcher lists again
    assert [path.name for path in bed.plane.data.iterdir()] == ["member"]
    assert set(bed.kubelet.running) == set(COMPONENTS)
    assert not (bed.paths.kubernetes / "stopped").exists()


def test_a_run_that_was_cut_off_is_repeated(bed: Bed) -> None:
    """The worst moment: the data before are aside, the new ones are not there, and nothing runs."""
    bed.etcd.etcdctl("cp-1", "put", "/registry/secrets/default/late", "again")
    stop(bed.plane, check_mode=False)
    wait_for(lambda: not bed.kubelet.running)
    work = bed.plane.data / "attested-restore"
    work.mkdir()
    (bed.plane.data / "member").rename(work / "before")
    assert bed.restore() == bed.before
    assert {key: bed.get(key) for key in KEYS} == KEYS
    assert bed.get("/registry/secrets/default/late") == ""
    assert not work.exists()


def test_what_others_have_is_stopped_once(bed: Bed) -> None:
    assert stop(bed.plane, check_mode=True).changed
    assert set(bed.kubelet.running) == set(COMPONENTS)
    assert stop(bed.plane, check_mode=False).changed
    wait_for(lambda: not bed.kubelet.running)
    assert not stop(bed.plane, check_mode=False).changed
