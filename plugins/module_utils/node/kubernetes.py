# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes of a member: what it runs, how a prepared release takes its place, and how that is rolled back.

The order is kubeadm's ("Upgrading kubeadm clusters"): `kubeadm upgrade apply` on the first control plane and
`kubeadm upgrade node` on all other nodes, then the drain, then the new kubelet. The directory `upgrade/` in kubeadm's
state has the previous files until the new kubelet is healthy. `upgrade.py` carries out what `upgrade_plan.py` plans.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..bundle.containerd import Place, restart_replaced
from ..bundle.containerd import restart as restart_containerd
from ..bundle.releases import CONTAINERD, Releases, step_path
from ..bundle.store import put_file, sha256_of
from ..bundle.versions import is_version
from ..core.documents import load_document, load_json
from ..core.files import make_directory, read_bytes, remove, write_atomic
from ..errors import AttestedError, ComponentError, KubeadmError
from ..kubeadm.api import KubeconfigNodeReader
from ..kubeadm.cluster import STATIC_PODS, parse_pins, patches_directory, write_patches
from ..kubeadm.gateway import last_lines, reported_version
from ..kubeadm.kubectl import Kubectl
from ..kubeadm.render import ignored_checks
from ..kubeadm.static_pods import image_of, version_of_image
from ..reasons import Reason
from .upgrade_plan import APPLY, Observed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ..kubeadm.api import NodeReader
    from ..kubeadm.operation import Machine
    from ..kubeadm.spec import KubernetesPaths, NodeSpec
    from .upgrade_plan import UpgradePlan

_LIMIT = 1 << 20
_COMMAND_SECONDS = 1800.0
_POLL_SECONDS = 1.0
_SETTLE_SECONDS = 10.0
_PRIVATE = 0o600
_API_TIME = "%Y-%m-%dT%H:%M:%SZ"
_KUBEADM = "/usr/local/bin/kubeadm"
_API_SERVER = "kube-apiserver"
_NOT_IN_A_STEP = ("addon",)
"""Phases of `kubeadm upgrade` that a step skips: add-ons run on all nodes, with images of the last release."""


class UpgradeBackup:
    """The backup, in the directory `upgrade/` of kubeadm's state, and the record of what the upgrade does."""

    def __init__(self, paths: KubernetesPaths) -> None:
        """Set the directories."""
        self._root = paths.root
        self.directory = paths.state / "upgrade"
        self._record = self.directory / "begun.json"

    @property
    def exists(self) -> bool:
        """Return whether an upgrade has begun and not ended."""
        return self._record.exists()

    def read(self) -> dict[str, Any]:
        """Return the previous ``release``, ``version``, ``api_version``, and ``target``, ``command``, ``configured``.

        Raises NODE_JOURNAL_MALFORMED.
        """
        try:
            found: dict[str, Any] = load_json(read_bytes(self._record, limit=_LIMIT))
            kept = {name: found[name] for name in ("release", "version", "command", "configured")}
            return kept | {name: found.get(name, "") for name in ("target", "api_version")}
        except (ValueError, KeyError, TypeError) as error:
            raise KubeadmError(
                f"expected the record of an upgrade in {self._record}", reason=Reason.NODE_JOURNAL_MALFORMED
            ) from error

    def keep(self, files: Iterable[Path], programs: Iterable[Path], *, release: str | None, plan: UpgradePlan) -> None:
        """Back up ``files`` and ``programs``, unless an earlier upgrade has not ended; write the record."""
        kept: dict[str, Any] = {"release": release, "version": plan.before, "api_version": plan.api_before}
        kept |= {"command": plan.command, "configured": ""}
        if self.exists:
            kept = self.read()
        else:
            shutil.rmtree(self.directory, ignore_errors=True)
            make_directory(self.directory, mode=0o700)
            for path in files:
                if path.exists():
                    make_directory(self._kept(path).parent)
                    shutil.copy2(path, self._kept(path))
            for path in programs:
                if path.exists():
                    put_file(path, self._kept(path))
        if plan.command == APPLY or not kept["command"]:
            kept["command"] = plan.command
        self._write(kept | {"target": plan.version})

    def note_configured(self, version: str) -> None:
        """Record that kubeadm's command has succeeded for ``version``."""
        self._write(self.read() | {"command": "", "configured": version})

    def put_back(self, files: Iterable[Path]) -> set[str]:
        """Restore ``files``; remove a file that was absent before. Return the paths of changed files."""
        changed = set()
        for path in files:
            kept = self._kept(path)
            if not kept.exists():
                changed |= {path} if path.exists() else set()
                remove(path)
            elif not path.exists() or sha256_of(path) != sha256_of(kept):
                put_file(kept, path)
                changed.add(path)
        return {f"/{path.relative_to(self._root)}" for path in changed}

    def forget(self) -> None:
        """Remove the backup."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _write(self, record: Mapping[str, Any]) -> None:
        write_atomic(self._record, json.dumps(record).encode() + b"\n", mode=_PRIVATE)

    def _kept(self, path: Path) -> Path:
        return self.directory / "before" / path.relative_to(self._root)


class Pods(Protocol):
    """The static Pods of a control plane."""

    def is_healthy(self, component: str) -> bool:
        """Return whether the component reports that it is healthy."""


class KubernetesGateway:
    """Kubernetes on this machine; ``releases`` are beside the environment in use."""

    def __init__(
        self,
        machine: Machine,
        releases: Releases,
        *,
        node: NodeSpec,
        pods: Pods | None,
        reader: NodeReader | None = None,
        without: Collection[str] = (),
    ) -> None:
        """Set the machine, its releases, its Node, and on a control plane its static Pods.

        ``without``: install paths that the machine leaves out.
        """
        self.machine = machine
        self._without = without
        self._releases = releases
        self._node = node
        self._pods = pods
        self._reader = reader or KubeconfigNodeReader(machine.paths.kubelet_config)
        self._before = UpgradeBackup(machine.paths)
        self._configuration = (
            machine.paths.kubelet / "config.yaml",
            machine.paths.kubelet / "kubeadm-flags.env",
            machine.paths.kubelet / "instance-config.yaml",
            machine.paths.image_pins,
        )
        self._manifests = tuple(machine.paths.kubernetes / "manifests" / f"{name}.yaml" for name in STATIC_PODS)

    def version_of(self, release: str, step: str = "") -> str:
        """Return the version of kubeadm in ``release``, or in its ``step``; raises RELEASE_NOT_PREPARED."""
        return self._version(self._kubeadm(release, step), "version", "--output=short")

    def observe(self, release: str, images: Sequence[Mapping[str, Any]]) -> Observed:
        """Return the state of the node compared with ``release``; raises KUBECTL_FAILED, IMAGE_PINS_MALFORMED."""
        begun = self._before.read() if self._before.exists else {}
        return Observed(
            version=begun.get("version") or self._version("kubelet", "--version"),
            cluster_version=self._cluster_version() if self._pods else "",
            programs=tuple(
                f"/{path}" for path in self._files(release) if not _same(self._place(path), self._own(release, path))
            ),
            api_version=self._api_version() if self._pods else "",
            pods=self._other_pods(images) if self._pods else (),
            noted=self._releases.installed() == release,
            begun=bool(begun),
            command=begun.get("command", ""),
            configured=begun.get("configured", ""),
            target=begun.get("target", ""),
        )

    def keep(self, plan: UpgradePlan, release: str) -> None:
        """Back up what the node runs now."""
        self._before.keep(
            (*self._configuration, *self._manifests),
            (self._place(path) for path in self._files(release)),
            release=self._releases.installed(),
            plan=plan,
        )

    def configure(
        self, plan: UpgradePlan, release: str, images: Sequence[Mapping[str, Any]], *, seconds: float
    ) -> None:
        """Upgrade static Pods and kubelet configuration with kubeadm; raises KUBERNETES_NOT_HEALTHY.

        After a failure, all files except etcd's manifest are restored: kubeadm itself restores etcd with its data. A
        step ends here and removes the backup, so the next upgrade rolls back to this step.
        """
        try:
            if images:
                write_atomic(self.machine.paths.image_pins, _rendered(images), mode=0o644)
            if self._pods:
                write_patches(self.machine.paths)
            self._upgrade(plan, release)
            self._require_well(seconds)
        except AttestedError as error:
            self._go_back(error, (*self._manifests[1:], *self._configuration), seconds=seconds, restart=False)
        self._before.note_configured(plan.version)
        if plan.step:
            self._end()

    def replace_kubelet(self, plan: UpgradePlan, release: str, *, seconds: float) -> None:
        """Install the programs and restart the kubelet; on failure restore them and raise KUBERNETES_NOT_HEALTHY."""
        try:
            for path in plan.programs:
                put_file(self._own(release, path.lstrip("/")), self._place(path.lstrip("/")))
            self._releases.note_installed(release)
            if plan.kubelet:
                if self._containerd(release):
                    place = Place(root=self.machine.paths.root, runner=self.machine.runner)
                    restart_replaced(place, anyway=bool(CONTAINERD.intersection(plan.programs)))
                self._restart_kubelet(plan.version, seconds)
        except AttestedError as error:
            programs = [self._place(path) for path in self._files(release)]
            self._go_back(error, (*programs, *self._configuration[:3]), seconds=seconds, restart=True)
        self._end()

    def _upgrade(self, plan: UpgradePlan, release: str) -> None:
        configuration = self._before.directory / "kubeadm.json"
        write_atomic(configuration, self._kubeadm_configuration(plan), mode=_PRIVATE)
        kubeadm = self._kubeadm(release, plan.version if plan.step else "")
        words = (f"v{plan.version}", "--yes") if plan.command == APPLY else ()
        argv = [str(kubeadm), "upgrade", plan.command, *words, f"--config={configuration}"]
        result = self.machine.runner.run(argv, timeout_seconds=_COMMAND_SECONDS, check=False)
        if result.returncode != 0:
            raise KubeadmError(
                f"kubeadm upgrade {plan.command} ended with {result.returncode}: {last_lines(result)}",
                reason=Reason.KUBEADM_PHASE_FAILED,
            )

    def _kubeadm_configuration(self, plan: UpgradePlan) -> bytes:
        """Return the UpgradeConfiguration (JSON). kubeadm pulls no image: `prepare` has imported all of them."""
        told: dict[str, Any] = {"certificateRenewal": False, "imagePullPolicy": "Never"}
        if self._pods:
            told["patches"] = {"directory": str(patches_directory(self.machine.paths))}
        if ignored := ignored_checks(self._node):
            told["ignorePreflightErrors"] = list(ignored)
        if plan.step:
            told["skipPhases"] = list(_NOT_IN_A_STEP)
        kind = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "UpgradeConfiguration"}
        return json.dumps({**kind, plan.command: told}).encode() + b"\n"

    def _go_back(self, error: AttestedError, files: Sequence[Path], *, seconds: float, restart: bool) -> None:
        kept = self._before.read()
        changed = self._before.put_back(files)
        if self._pods:
            write_patches(self.machine.paths)
        try:
            if restart:
                if kept["release"]:
                    self._releases.note_installed(kept["release"])
                if CONTAINERD & changed:
                    restart_containerd(self.machine.runner)
                self._restart_kubelet(kept["version"], seconds)
            else:
                self._require_node(kept["version"], seconds)
            back = ""
            self._end()
        except AttestedError as other:
            back = f", where {other.message}"
        reached = kept["version"] if restart else kept["api_version"] or kept["version"]
        back = f"the node was put back to {reached}{back}"
        raise KubeadmError(f"{error.message}; {back}", reason=Reason.KUBERNETES_NOT_HEALTHY) from error

    def _end(self) -> None:
        """Remove the backup, and kubeadm's copies of manifests and of etcd's data."""
        self._before.forget()
        shutil.rmtree(self.machine.paths.kubernetes / "tmp", ignore_errors=True)

    def _restart_kubelet(self, version: str, seconds: float) -> None:
        """Restart the kubelet and wait until it reports ``version`` and Ready after the restart.

        The API has timestamps in whole seconds, and the next report of a kubelet may be minutes after the first one.
        So the restart waits for the next second.
        """
        before = self.machine.clock.now()
        self.machine.clock.sleep(1 - before.microsecond / 1_000_000)
        since = before.strftime(_API_TIME)
        self.machine.kubelet.restart()
        self._require_node(version, seconds, since=since)

    def _require_node(self, version: str, seconds: float, *, since: str = "") -> None:
        """Wait until the kubelet reports ``version`` and Ready after ``since``, and static Pods are healthy."""
        said = "nothing"

        def reported() -> bool:
            nonlocal said
            try:
                view = self._reader.node(self._node.name)
            except AttestedError as error:
                said = error.message
                return False
            if view is None:
                said = "no Node"
                return False
            if view.reported <= since:
                said = f"no report after {since}"
                return False
            said = f"{view.kubelet_version or 'none'}, ready: {view.ready}"
            return view.ready and view.kubelet_version == version

        self._wait(reported, seconds, lambda: f"expected a Ready Node with kubelet {version}, got {said}")
        self._require_well(seconds)

    def _require_well(self, seconds: float) -> None:
        """Wait until the static Pods are healthy for `_SETTLE_SECONDS`."""
        if self._pods is None:
            return
        clock, pods = self.machine.clock, self._pods
        since: float | None = None
        ill: list[str] = []

        def settled() -> bool:
            nonlocal since, ill
            ill = [name for name in STATIC_PODS if not pods.is_healthy(name)]
            since = None if ill else clock.monotonic() if since is None else since
            return since is not None and clock.monotonic() - since >= _SETTLE_SECONDS

        self._wait(settled, seconds, lambda: f"expected {', '.join(ill) or 'the static Pods'} to be and stay healthy")

    def _wait(self, done: Callable[[], bool], seconds: float, otherwise: Callable[[], str]) -> None:
        deadline = self.machine.clock.monotonic() + seconds
        while not done():
            if self.machine.clock.monotonic() >= deadline:
                raise KubeadmError(f"{otherwise()} within {seconds:g} s", reason=Reason.KUBERNETES_NOT_HEALTHY)
            self.machine.clock.sleep(_POLL_SECONDS)

    def _cluster_version(self) -> str:
        kubectl = Kubectl.of_a_module(str(self.machine.paths.admin_config), self.machine.runner)
        for found in kubectl.read_one("configmap", "kubeadm-config", "kube-system"):
            version = str(load_document(found["data"]["ClusterConfiguration"])["kubernetesVersion"]).removeprefix("v")
            if is_version(version):
                return version
        raise KubeadmError(
            "expected the ConfigMap kubeadm-config with a version of Kubernetes", reason=Reason.KUBECTL_FAILED
        )

    def _other_pods(self, images: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        wanted = parse_pins(_rendered(images)) if images else {}
        found = {path.stem: image_of(read_bytes(path, limit=_LIMIT)) for path in self._manifests}
        return tuple(name for name, image in wanted.items() if found[name] != image)

    def _files(self, release: str) -> tuple[str, ...]:
        """Return the install paths of the programs of ``release``, without leading slash."""
        return tuple(path for path in self._releases.files(release) if f"/{path}" not in self._without)

    def _containerd(self, release: str) -> bool:
        """Return whether the machine uses containerd of ``release``."""
        return any(f"/{path}" in CONTAINERD for path in self._files(release))

    def _api_version(self) -> str:
        place = self.machine.paths.kubernetes / "manifests" / f"{_API_SERVER}.yaml"
        return version_of_image(image_of(read_bytes(place, limit=_LIMIT)))

    def _kubeadm(self, release: str, step: str = "") -> Path:
        if step:
            return self._own(release, step_path(step, _KUBEADM))
        return next(
            (self._own(release, one) for one in self._files(release) if one.endswith("/kubeadm")), Path("/none")
        )

    def _own(self, release: str, path: str) -> Path:
        return self._releases.program(release, path)

    def _version(self, program: Path | str, *words: str) -> str:
        found = reported_version(self.machine.runner, (str(program), *words))
        if found is None or not is_version(found):
            raise ComponentError(
                f"expected {program} to print its version, got {found or 'none'}", reason=Reason.RELEASE_NOT_PREPARED
            )
        return found

    def _place(self, path: str) -> Path:
        return self.machine.paths.root / path


def _same(one: Path, other: Path) -> bool:
    return one.is_file() and (one.samefile(other) or sha256_of(one) == sha256_of(other))


def _rendered(images: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the images as JSON, in the format of `prepare`."""
    return json.dumps(list(images), indent=1, sort_keys=True).encode() + b"\n"
