# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes of a member comes from a prepared release, or is what it was before."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.containerd import PROGRAM
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.releases import CONTAINERD, Releases
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    ComponentError,
    KubeadmError,
    SystemFault,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api import NodeView
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster import STATIC_PODS
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.gateway import require_prepared
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths, NodeSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.node.kubernetes import KubernetesGateway
from ansible_collections.attested.kubernetes.plugins.module_utils.node.upgrade import upgrade
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

OLD, NEW, NEWEST = "1.35.4", "1.36.3", "1.37.2"
VERSIONS = {"old": OLD, "new": NEW, "newest": NEWEST}
UNIT = "etc/systemd/system/containerd.service"
PROGRAMS = ("usr/local/bin/kubeadm", "usr/local/bin/kubelet", "usr/local/bin/kubectl")


def images(version: str) -> list[dict[str, str]]:
    digest = version.replace(".", "").ljust(64, "0")
    return [
        {"component": name, "reference": f"registry.k8s.io/{name}:v{version}", "digest": f"sha256:{digest}"}
        for name in STATIC_PODS
    ]


def manifest(name: str, version: str) -> str:
    digest = version.replace(".", "").ljust(64, "0")
    container = {"name": name, "image": f"registry.k8s.io/{name}:v{version}@sha256:{digest}"}
    return json.dumps({"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}})


class Cut(BaseException):
    """The machine loses its power."""


@dataclass
class Host:
    """A member: its programs say the version that is written in them, kubeadm writes what it would write.

    ``fails``: what does not work (kubeadm, kubelet, kube-apiserver), while the version is not the old one; ``away``:
    until when a member of etcd does not answer; ``cut``: the command at which the power goes. The release "newest" is
    two minors away and has the one between. ``asked``: the configurations that kubeadm was given.
    """

    root: Path
    control_plane: bool
    fails: str = ""
    away: float = 0.0
    cut: str = ""
    cluster: str = OLD
    runs: str = OLD
    told: list[str] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.25
    reported: float = 0.0

    def __post_init__(self) -> None:
        self.paths = KubernetesPaths(root=self.root)
        self.releases = Releases("/opt/attested/venv", root=self.root)
        for release, version in VERSIONS.items():
            for program in PROGRAMS:
                self._write(self.releases.program(release, program), f"{program} {version}")
        self._write(self.releases.program("newest", f"steps/{NEW}/{PROGRAMS[0]}"), f"kubeadm {NEW}")
        for program in PROGRAMS:
            self._write(self.root / program, f"{program} {OLD}")
        self.releases.note_installed("old")
        self._configure(OLD)
        self._write(self.paths.image_pins, json.dumps(images(OLD)))
        if not self.control_plane:
            for name in STATIC_PODS:
                (self.paths.kubernetes / f"manifests/{name}.yaml").unlink()

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _configure(self, version: str) -> None:
        self._write(self.paths.kubelet / "config.yaml", f"config of {version}")
        self._write(self.paths.kubelet / "kubeadm-flags.env", f"flags of {version}")
        for name in STATIC_PODS:
            self._write(self.paths.kubernetes / f"manifests/{name}.yaml", manifest(name, version))

    def content(self) -> dict[str, str]:
        """Return what an upgrade may change."""
        kept = [*(self.root / one for one in PROGRAMS), *self.paths.kubelet.iterdir(), self.paths.image_pins]
        return {str(path): path.read_text() for path in (*kept, *self.paths.kubernetes.glob("manifests/*"))}

    # the runner
    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        line = " ".join(argv).replace(str(self.root), "")
        code, said = 0, ""
        if "version" in line:
            program = self.root / self._program(argv[0])
            if not program.exists():
                raise SystemFault(f"expected {argv[0]}", reason=Reason.COMMAND_MISSING)
            said = f"Kubernetes v{program.read_text().split()[-1]}"
        elif argv[0] == "kubectl":
            configuration = json.dumps({"kubernetesVersion": f"v{self.cluster}"})
            said = json.dumps({"data": {"ClusterConfiguration": configuration}})
        else:
            code, said = self._change(argv, line)
        return CommandResult(argv=tuple(argv), returncode=code, stdout=said.encode(), stderr=b"")

    def _program(self, name: str) -> str:
        return name.replace(str(self.root), "").lstrip("/") if "/" in name else f"usr/local/bin/{name}"

    def _change(self, argv: Sequence[str], line: str) -> tuple[int, str]:
        self.told.append(line)
        if self.cut and self.cut in line:
            self.cut = ""
            raise Cut
        if " upgrade " in line:
            version = Path(argv[0]).read_text().split()[-1]
            self.asked.append(json.loads(Path(argv[-1].removeprefix("--config=")).read_text()))
            self._write(self.paths.kubernetes / "tmp/backup-of-etcd", "secret")
            if self.control_plane:
                self._configure(version)
            else:
                self._write(self.paths.kubelet / "config.yaml", f"config of {version}")
            if self.fails == "kubeadm":
                return 1, "static Pod hash did not change"
            if " apply " in line:
                self.cluster = version
        elif "restart" in argv:
            if self.fails != "report":
                self.reported = self.seconds
            self.runs = (self.root / PROGRAMS[1]).read_text().split()[-1]
        return 0, ""

    # the clock
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    # the static Pods
    def is_healthy(self, component: str) -> bool:
        text = (self.paths.kubernetes / f"manifests/{component}.yaml").read_text()
        return not (self.fails == component and text != manifest(component, OLD))

    # the members of etcd
    def require_healthy(self) -> None:
        if self.seconds < self.away:
            raise KubeadmError("expected cp-3", reason=Reason.ETCD_MEMBER_UNHEALTHY)

    # the API
    def node(self, name: str) -> NodeView:
        ready = not (self.fails == "kubelet" and self.runs != OLD)
        reported = datetime.fromtimestamp(self.reported, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return NodeView(name=name, boot_id="", ready=ready, kubelet_version=self.runs, reported=reported)

    def upgrade(
        self,
        until: str = "kubelet",
        *,
        release: str = "new",
        step: str = "",
        after: str = "",
        check_mode: bool = False,
        without: Collection[str] = (),
    ):
        machine = Machine(runner=self, clock=self, paths=self.paths)
        node = NodeSpec(name="w-1", node_ip="", ignore_preflight_errors=("Swap",))
        pods = self if self.control_plane else None
        gateway = KubernetesGateway(machine, self.releases, node=node, pods=pods, reader=self, without=without)
        params = {
            "release": release,
            "role": "control_plane" if self.control_plane else "worker",
            "images": images(step or VERSIONS.get(release, OLD)),
            "step": step,
            "after": after,
            "until": until,
            "wait_seconds": 60,
        }
        return upgrade(gateway, params, check_mode=check_mode, members=pods)


@pytest.fixture
def plane(tmp_path):
    return Host(tmp_path, control_plane=True)


@pytest.fixture
def worker(tmp_path):
    return Host(tmp_path, control_plane=False)


def test_a_step_upgrades_the_static_pods_and_leaves_the_kubelet(plane):
    result = plane.upgrade(release="newest", step=NEW)
    assert (result.changed, result.values["drain"], result.values["version"]) == (True, False, NEW)
    (applied,) = plane.told
    kubeadm = f"/opt/attested/releases/newest/steps/{NEW}/usr/local/bin/kubeadm"
    assert applied.startswith(f"{kubeadm} upgrade apply v{NEW} --yes --config=")
    assert plane.asked[0]["apply"]["skipPhases"] == ["addon"]
    assert (plane.cluster, plane.runs, plane.releases.installed()) == (NEW, OLD, "old")
    assert (plane.root / PROGRAMS[1]).read_text().endswith(OLD)
    assert json.loads(plane.paths.image_pins.read_text()) == images(NEW)
    assert not (plane.paths.state / "upgrade").exists()
    assert not (plane.paths.kubernetes / "tmp").exists()


def test_two_minors_by_a_step(plane):
    plane.upgrade(release="newest", step=NEW)
    again = plane.upgrade(release="newest", step=NEW)
    assert (again.changed, len(plane.told)) == (False, 1)
    plane.upgrade(release="newest", until="configuration")
    result = plane.upgrade(release="newest")
    assert (result.values["before"], result.values["drain"]) == (OLD, True)
    assert (plane.cluster, plane.runs, plane.releases.installed()) == (NEWEST, NEWEST, "newest")
    assert "skipPhases" not in plane.asked[-1]["apply"]
    plane.told.clear()
    assert [plane.upgrade(release="newest", step=step).changed for step in (NEW, "")] == [False, False]
    assert plane.told == []


def test_two_minors_without_the_step_are_refused(plane):
    with pytest.raises(ComponentError) as caught:
        plane.upgrade(release="newest")
    assert (caught.value.reason, plane.told) == (Reason.RELEASE_SKEW, [])


def test_a_release_without_the_step_is_not_prepared(plane):
    with pytest.raises(ComponentError) as caught:
        plane.upgrade(release="new", step=NEW)
    assert (caught.value.reason, plane.told) == (Reason.RELEASE_NOT_PREPARED, [])


def test_a_step_of_another_version_is_not_prepared(plane):
    plane.releases.program("newest", f"steps/{NEW}/{PROGRAMS[0]}").write_text("kubeadm 1.36.2")
    with pytest.raises(ComponentError) as caught:
        plane.upgrade(release="newest", step=NEW)
    assert (caught.value.reason, plane.told) == (Reason.RELEASE_NOT_PREPARED, [])


def test_a_step_that_was_done_needs_no_program(plane):
    plane.upgrade(release="newest", step=NEW)
    assert not plane.upgrade(release="new", step=NEW).changed


def test_check_mode_shows_what_comes_after_a_step(plane):
    before = plane.content()
    found = [plane.upgrade(release="newest", check_mode=True, **words) for words in ({"step": NEW}, {"after": NEW})]
    assert [one.changed for one in found] == [True, True]
    assert found[0].diff.after == f"kubeadm upgrade apply v{NEW}\n"
    assert found[1].diff.after.splitlines()[0] == f"kubeadm upgrade apply v{NEWEST}"
    assert found[1].diff.after.splitlines()[-1] == f"restart the kubelet: {OLD} -> {NEWEST}"
    assert (plane.told, plane.content()) == ([], before)


def test_what_check_mode_takes_as_done_counts_in_check_mode_only(plane):
    with pytest.raises(ComponentError) as caught:
        plane.upgrade(release="newest", after=NEW)
    assert (caught.value.reason, plane.told) == (Reason.RELEASE_SKEW, [])


def test_check_mode_of_a_worker_that_crosses_two_minors(worker):
    result = worker.upgrade(release="newest", after=NEW, check_mode=True)
    assert result.diff.after.splitlines()[0] == "kubeadm upgrade node"


def test_an_upgrade_that_fails_after_a_step_goes_back_to_the_step(plane):
    plane.upgrade(release="newest", step=NEW)
    before = plane.content()
    plane.fails = "kubeadm"
    with pytest.raises(KubeadmError) as caught:
        plane.upgrade(release="newest", until="configuration")
    assert f"put back to {NEW}" in caught.value.message
    etcd = str(plane.paths.kubernetes / "manifests/etcd.yaml")
    assert plane.content() | {etcd: ""} == before | {etcd: ""}


@pytest.mark.parametrize("command", ["apply", "node"])
def test_a_step_that_was_cut_off_goes_on(plane, command):
    plane.cluster = NEW if command == "node" else OLD
    plane.cut = f" upgrade {command}"
    with pytest.raises(Cut):
        plane.upgrade(release="newest", step=NEW)
    plane.told.clear()
    plane.upgrade(release="newest", step=NEW)
    assert [f" upgrade {command} " in line for line in plane.told] == [True]
    assert (plane.cluster, (plane.paths.state / "upgrade").exists()) == (NEW, False)


def test_the_first_control_plane_is_upgraded(plane):
    result = plane.upgrade()
    (applied,) = [line for line in plane.told if " upgrade " in line]
    assert applied.startswith(f"/opt/attested/releases/new/usr/local/bin/kubeadm upgrade apply v{NEW} --yes --config=")
    assert plane.asked == [
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "UpgradeConfiguration",
            "apply": {
                "certificateRenewal": False,
                "imagePullPolicy": "Never",
                "patches": {"directory": str(plane.paths.state / "patches")},
                "ignorePreflightErrors": ["Swap"],
            },
        }
    ]
    assert [step["name"] for step in result.values["steps"]] == ["apply", "kubelet"]
    assert plane.runs == NEW
    assert plane.releases.installed() == "new"
    assert json.loads(plane.paths.image_pins.read_text()) == images(NEW)
    assert not (plane.paths.state / "upgrade").exists()
    assert not (plane.paths.kubernetes / "tmp").exists()


def test_a_worker_gets_no_patches(worker):
    worker.upgrade()
    (line,) = [line for line in worker.told if " upgrade " in line]
    assert line.startswith("/opt/attested/releases/new/usr/local/bin/kubeadm upgrade node --config=")
    assert set(worker.asked[0]["node"]) == {"certificateRenewal", "imagePullPolicy", "ignorePreflightErrors"}
    assert worker.runs == NEW


@pytest.mark.parametrize("kind", ["plane", "worker"])
def test_a_second_run_changes_nothing(kind, request):
    host = request.getfixturevalue(kind)
    host.upgrade()
    host.told.clear()
    before = host.content()
    result = host.upgrade()
    assert (result.changed, result.values["drain"], host.told, host.content()) == (False, False, [], before)


def test_the_programs_wait_for_the_drain(plane):
    result = plane.upgrade(until="configuration")
    assert (result.changed, result.values["drain"], plane.runs) == (True, True, OLD)
    assert (plane.root / PROGRAMS[1]).read_text().endswith(OLD)
    plane.told.clear()
    assert [step["name"] for step in plane.upgrade().values["steps"]] == ["kubelet"]
    assert [line for line in plane.told if " upgrade " in line] == []
    assert plane.runs == NEW


def test_check_mode_shows_the_plan(plane):
    before = plane.content()
    result = plane.upgrade(check_mode=True)
    assert result.changed
    assert result.diff.after.splitlines() == [
        f"kubeadm upgrade apply v{NEW}",
        *(f"install /{one}" for one in sorted(PROGRAMS)),
        f"restart the kubelet: {OLD} -> {NEW}",
    ]
    assert (plane.told, plane.content()) == ([], before)


def test_a_release_of_the_same_version_needs_no_drain(plane):
    for program in PROGRAMS:
        plane.releases.program("other", program).parent.mkdir(parents=True, exist_ok=True)
        plane.releases.program("other", program).write_text((plane.root / program).read_text())
    configured = plane.upgrade(until="configuration", release="other")
    result = plane.upgrade(release="other")
    assert (configured.changed, configured.values["drain"], result.changed) == (False, False, True)
    assert (plane.told, plane.releases.installed()) == ([], "other")


@pytest.mark.parametrize("fails", ["kubeadm", "kube-apiserver"])
def test_a_control_plane_that_does_not_come_up_is_put_back(plane, fails):
    before = plane.content()
    plane.fails = fails
    with pytest.raises(KubeadmError) as caught:
        plane.upgrade()
    assert caught.value.reason is Reason.KUBERNETES_NOT_HEALTHY
    assert f"put back to {OLD}" in caught.value.message
    etcd = str(plane.paths.kubernetes / "manifests/etcd.yaml")  # kubeadm itself puts it back, with its data
    assert plane.content() | {etcd: ""} == before | {etcd: ""}
    assert plane.runs == OLD
    assert not (plane.paths.kubernetes / "tmp").exists()
    plane.fails = ""
    plane.upgrade()
    assert (plane.runs, plane.cluster) == (NEW, NEW)


@pytest.mark.parametrize("kind", ["plane", "worker"])
def test_a_kubelet_that_does_not_start_is_put_back(kind, request):
    host = request.getfixturevalue(kind)
    before = host.content()
    host.fails = "kubelet"
    with pytest.raises(KubeadmError) as caught:
        host.upgrade()
    assert caught.value.reason is Reason.KUBERNETES_NOT_HEALTHY
    assert f"got {NEW}, ready: False" in caught.value.message
    kept = [*(str(host.root / one) for one in PROGRAMS), str(host.paths.kubelet / "config.yaml")]
    assert {path: host.content()[path] for path in kept} == {path: before[path] for path in kept}
    assert (host.runs, host.releases.installed()) == (OLD, "old")
    host.fails = ""
    host.upgrade()
    assert host.runs == NEW


def test_what_a_kubelet_reported_before_its_restart_does_not_count(contained):
    """Its version is the one of before, and its Node stays Ready for a while."""
    contained.fails = "report"
    with pytest.raises(KubeadmError, match="no report after 1970-01-01T00:00:00Z") as caught:
        contained.upgrade(release="other")
    assert caught.value.reason is Reason.KUBERNETES_NOT_HEALTHY
    assert contained.containerd == "containerd 1"


def test_a_file_that_was_not_there_before_goes(worker):
    (worker.paths.kubelet / "kubeadm-flags.env").unlink()
    worker.fails = "kubelet"
    worker.upgrade(until="configuration")
    (worker.paths.kubelet / "kubeadm-flags.env").write_text("flags of the new one")
    with pytest.raises(KubeadmError):
        worker.upgrade()
    assert not (worker.paths.kubelet / "kubeadm-flags.env").exists()


@pytest.mark.parametrize("options", [{}, {"check_mode": True}, {"release": "newest", "step": NEW}])
def test_no_control_plane_is_upgraded_while_a_member_of_etcd_is_away(plane, options):
    before, plane.away = plane.content(), 3600.0
    with pytest.raises(KubeadmError) as caught:
        plane.upgrade(**options)
    assert caught.value.reason is Reason.ETCD_MEMBER_UNHEALTHY
    assert (plane.told, plane.content()) == ([], before)
    assert not (plane.paths.state / "upgrade").exists()
    plane.away = 0.0
    plane.upgrade()
    assert plane.runs == NEW


def test_a_member_of_etcd_that_was_just_restarted_is_waited_for(plane):
    plane.away = plane.seconds + 20
    plane.upgrade()
    assert plane.runs == NEW


def test_a_control_plane_that_stays_asks_no_etcd(plane):
    plane.away = 3600.0
    assert not plane.upgrade(release="old").changed


@pytest.mark.parametrize("cut", [" upgrade apply", "restart"])
def test_an_upgrade_that_was_cut_off_goes_on(plane, cut):
    """Even if etcd is not well: what was cut off may be the reason."""
    plane.cut = cut
    with pytest.raises(Cut):
        plane.upgrade()
    plane.away = 3600.0
    plane.upgrade()
    assert (plane.runs, plane.cluster, plane.releases.installed()) == (NEW, NEW, "new")
    assert not (plane.paths.state / "upgrade").exists()


def test_what_is_put_back_after_a_cut_is_what_was_there_before_it(plane):
    before = plane.content()
    plane.cut = "restart"
    with pytest.raises(Cut):
        plane.upgrade()
    plane.fails = "kubelet"
    with pytest.raises(KubeadmError) as caught:
        plane.upgrade()
    assert f"put back to {OLD}" in caught.value.message
    programs = [str(plane.root / one) for one in PROGRAMS]
    assert {path: plane.content()[path] for path in programs} == {path: before[path] for path in programs}


def test_a_release_that_is_not_there(plane):
    with pytest.raises(ComponentError) as caught:
        plane.upgrade(release="other")
    assert caught.value.reason is Reason.RELEASE_NOT_PREPARED


@pytest.mark.parametrize(
    ("version", "ticket", "member", "accepted"),
    [
        pytest.param(OLD, OLD, False, True, id="a new machine of the ticket's version"),
        pytest.param(OLD, NEW, False, False, id="a new machine of another version"),
        pytest.param(OLD, NEW, True, True, id="a member before its upgrade"),
        pytest.param(NEW, OLD, True, True, id="a member after its upgrade"),
        pytest.param("1.33.0", NEW, True, True, id="a member three minors behind"),
        pytest.param("1.32.0", NEW, True, False, id="a member four minors behind"),
        pytest.param("1.37.2", OLD, True, False, id="a member two minors ahead"),
        pytest.param(OLD, "nonsense", True, False, id="a ticket without a version"),
        pytest.param(OLD, "", True, False, id="a ticket with none"),
    ],
)
def test_which_version_a_machine_starts_with(plane, version, ticket, member, accepted):
    for program in PROGRAMS[:2]:
        (plane.root / program).write_text(f"{program} {version}")
    if accepted:
        require_prepared(plane, version=ticket, member=member)
        return
    with pytest.raises(KubeadmError) as caught:
        require_prepared(plane, version=ticket, member=member)
    assert caught.value.reason is Reason.RELEASE_NOT_PREPARED


class Contained(Host):
    """A member that runs containerd of its distribution; the release "other" has one, and the kubelet of before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for program in PROGRAMS:
            self._write(self.releases.program("other", program), f"{program} {OLD}")
        self._write(self.releases.program("other", PROGRAM), "containerd 2")
        self._write(self.releases.program("other", UNIT), "unit of the bundle")
        self._write(self.root / "usr/bin/containerd", "containerd 1")
        self._start(self.root / "usr/bin/containerd")

    def _start(self, program: Path) -> None:
        process = self.root / "proc/77/exe"
        process.unlink(missing_ok=True)
        process.parent.mkdir(parents=True, exist_ok=True)
        process.hardlink_to(program)

    @property
    def containerd(self) -> str:
        """What the process of containerd was started from."""
        return (self.root / "proc/77/exe").read_text()

    def run(self, argv: Sequence[str], **options: object) -> CommandResult:
        said = ""
        if argv[:2] == ["systemctl", "show"]:
            said = "77\n"
        elif argv[0] == "ctr":
            state = "error" if self.fails == "interface" and self.containerd == "containerd 2" else "ok"
            said = f"TYPE ID PLATFORMS STATUS\nio.containerd.grpc.v1 cri - {state}\n"
        else:
            if argv[-1] == "containerd.service":
                self._restart()
            return super().run(argv, **options)
        return CommandResult(argv=tuple(argv), returncode=0, stdout=said.encode(), stderr=b"")

    def _restart(self) -> None:
        place = self.root / PROGRAM.lstrip("/")
        ours = place if (self.root / UNIT).exists() else self.root / "usr/bin/containerd"
        if self.fails == "containerd" and ours == place:
            raise SystemFault("systemctl restart ended with 1", reason=Reason.COMMAND_FAILED)
        self._start(ours)


@pytest.fixture
def contained(tmp_path):
    return Contained(tmp_path, control_plane=False)


def restarts(host: Host) -> list[str]:
    return [line.split()[-1].partition(".")[0] for line in host.told if "restart" in line]


def test_containerd_of_the_bundle_takes_the_place_of_the_distributions(contained):
    shown = contained.upgrade(release="other", check_mode=True)
    configured = contained.upgrade(until="configuration", release="other")
    before = contained.containerd
    result = contained.upgrade(release="other")
    again = contained.upgrade(release="other")
    assert shown.diff.after.splitlines() == [
        f"install /{UNIT}",
        f"install {PROGRAM}",
        "restart containerd",
        f"restart the kubelet: {OLD} -> {OLD}",
    ]
    assert (configured.changed, configured.values["drain"], before) == (False, True, "containerd 1")
    assert (result.changed, contained.containerd, (contained.root / UNIT).read_text()) == (
        True,
        "containerd 2",
        "unit of the bundle",
    )
    assert contained.told.index("systemctl daemon-reload") < contained.told.index(
        "systemctl restart containerd.service"
    )
    assert restarts(contained) == ["containerd", "kubelet"]
    assert (again.changed, again.values["drain"]) == (False, False)


def test_a_machine_with_containerd_of_its_distribution_keeps_it(contained):
    result = contained.upgrade(release="other", without=CONTAINERD)
    assert (result.values["drain"], contained.told, contained.containerd) == (False, [], "containerd 1")
    assert not (contained.root / UNIT).exists()


@pytest.mark.parametrize("fails", ["containerd", "interface"])
def test_a_containerd_that_does_not_work_is_put_back(contained, fails):
    contained.fails = fails
    with pytest.raises(KubeadmError) as caught:
        contained.upgrade(release="other")
    assert caught.value.reason is Reason.KUBERNETES_NOT_HEALTHY
    assert f"put back to {OLD}" in caught.value.message
    assert not (contained.root / UNIT).exists()
    assert not (contained.root / PROGRAM.lstrip("/")).exists()
    assert (contained.containerd, contained.releases.installed()) == ("containerd 1", "old")
    contained.fails = ""
    contained.upgrade(release="other")
    assert contained.containerd == "containerd 2"


def test_a_kubelet_that_does_not_start_takes_containerd_back_with_it(contained):
    contained._write(contained.releases.program("new", PROGRAM), "containerd 2")
    contained._write(contained.releases.program("new", UNIT), "unit of the bundle")
    contained.fails = "kubelet"
    with pytest.raises(KubeadmError):
        contained.upgrade()
    assert (contained.runs, contained.containerd) == (OLD, "containerd 1")
    assert not (contained.root / UNIT).exists()


def test_a_containerd_that_stays_is_not_restarted_where_a_kubelet_is_put_back(contained):
    contained.upgrade(release="other")
    for path in (PROGRAM.lstrip("/"), UNIT):
        contained._write(contained.releases.program("new", path), (contained.root / path).read_text())
    contained.fails = "kubelet"
    contained.told.clear()
    with pytest.raises(KubeadmError):
        contained.upgrade()
    assert (contained.runs, restarts(contained)) == (OLD, ["kubelet", "kubelet"])


def test_a_newer_containerd_takes_the_place_of_the_one_before(contained):
    contained.upgrade(release="other")
    contained._write(contained.releases.program("later", PROGRAM), "containerd 3")
    for path in (*PROGRAMS, UNIT):
        text = (contained.root / path).read_text()
        contained._write(contained.releases.program("later", path), text)
    contained.told.clear()
    contained.upgrade(release="later")
    assert (contained.containerd, restarts(contained)) == ("containerd 3", ["containerd", "kubelet"])


@pytest.mark.parametrize("cut", ["daemon-reload", "restart containerd", "restart kubelet"])
def test_a_containerd_whose_restart_was_cut_off_is_restarted(contained, cut):
    contained.cut = cut
    with pytest.raises(Cut):
        contained.upgrade(release="other")
    contained._start(contained.root / "usr/bin/containerd")
    contained.upgrade(release="other")
    assert (contained.containerd, contained.releases.installed()) == ("containerd 2", "other")
    assert not (contained.paths.state / "upgrade").exists()


@pytest.mark.parametrize("path", sorted(CONTAINERD))
def test_what_belongs_to_containerd_is_replaced_on_a_drained_node(contained, path):
    contained.upgrade(release="other")
    for one in (*PROGRAMS, PROGRAM.lstrip("/"), UNIT):
        contained._write(contained.releases.program("later", one), (contained.root / one).read_text())
    contained._write(contained.releases.program("later", path), "another")
    contained.told.clear()
    assert contained.upgrade(until="configuration", release="later").values["drain"]
    contained.upgrade(release="later")
    assert restarts(contained) == ["containerd", "kubelet"]
    assert (contained.root / path.lstrip("/")).read_text() == "another"
