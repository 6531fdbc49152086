# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the upgrade of a node to another release of Kubernetes from the node's present state. Pure.

A control plane moves one minor version at a time. An intermediate release, a *step*, upgrades only its static Pods. Its
kubelet, and what kubeadm installs on all nodes, are upgraded with the last release (docs/adr/0077).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..bundle.releases import CONTAINERD
from ..bundle.versions import version_key
from ..errors import ComponentError
from ..reasons import Reason

APPLY, NODE = "apply", "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The present state of a node; versions have no "v".

    ``cluster_version`` is from kubeadm-config ("" on a worker), ``version`` is the kubelet's, ``api_version`` the API
    server's ("" on a worker, or if its image has no version). ``programs``: installed paths whose content differs from
    the release; ``pods``: static Pods with another image. ``begun``: an earlier upgrade, to ``target``, has not ended.
    ``command`` is its kubeadm command, "" once it has run; ``configured`` is the version for which it has run.
    """

    version: str
    cluster_version: str
    programs: tuple[str, ...]
    api_version: str = ""
    pods: tuple[str, ...] = ()
    noted: bool = True
    begun: bool = False
    command: str = ""
    configured: str = ""
    target: str = ""

    @property
    def apis(self) -> tuple[str, ...]:
        """The versions of the control plane: the cluster's and this machine's; empty on a worker."""
        return tuple(one for one in (self.cluster_version, self.api_version) if one)

    def after(self, version: str) -> Observed:
        """Return the state of the node after its control plane was upgraded to ``version``."""
        newest = max((version, *self.apis), key=version_key)
        return replace(self, cluster_version=newest, api_version=newest)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePlan:
    """What is to do: run kubeadm, install programs, restart the kubelet, write the note.

    ``command`` is kubeadm's ("" for none). The kubelet is also restarted with containerd, because it reads the cgroup
    driver from containerd when it starts.

    ``before`` is the version of the kubelet, ``api_before`` the version of the API server. ``step``: only the static
    Pods are upgraded, all else waits for a later release.
    """

    before: str
    version: str
    command: str
    programs: tuple[str, ...]
    kubelet: bool
    note: bool
    api_before: str = ""
    step: bool = False

    @property
    def drains(self) -> bool:
        """Whether the node must be drained, because its kubelet or containerd is replaced."""
        return not self.step and (self.before != self.version or _restarts_kubelet(self.programs))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to do."""
        return not (self.command or self.programs or self.kubelet or self.note)

    def lines(self) -> tuple[str, ...]:
        """Return the plan for a person, one line for each step."""
        target = f" v{self.version}" if self.command == APPLY else ""
        return (
            *([f"kubeadm upgrade {self.command}{target}"] if self.command else []),
            *(f"install {path}" for path in self.programs),
            *(["restart containerd"] if CONTAINERD.intersection(self.programs) else []),
            *([f"restart the kubelet: {self.before} -> {self.version}"] if self.kubelet else []),
        )


def plan_upgrade(found: Observed, version: str, *, control_plane: bool) -> UpgradePlan:
    """Return the plan to upgrade a node to the release of ``version``.

    Raises RELEASE_DOWNGRADE and RELEASE_SKEW.
    """
    newest = max((found.version, *found.apis), key=version_key)
    if version_key(version) < version_key(newest):
        raise ComponentError(
            f"expected a release that is not older than {newest}, got {version}", reason=Reason.RELEASE_DOWNGRADE
        )
    oldest = min(found.apis or (found.version,), key=version_key)
    if control_plane:
        _require_next(oldest, version)
    return UpgradePlan(
        before=found.version,
        version=version,
        command=_command(found, version, control_plane=control_plane),
        programs=found.programs,
        kubelet=found.begun or _restarts_kubelet(found.programs),
        note=not found.noted,
        api_before=found.api_version,
    )


def _restarts_kubelet(programs: tuple[str, ...]) -> bool:
    """Return whether one of the programs is the kubelet or belongs to containerd."""
    return any(path.endswith("/kubelet") or path in CONTAINERD for path in programs)


def plan_step(found: Observed, version: str) -> UpgradePlan:
    """Return the plan to upgrade the static Pods to the intermediate release ``version``.

    The plan is empty unless the control plane has an older minor version, or this step was begun. It is also empty if
    the control plane is already newer. Raises RELEASE_SKEW.
    """
    key = version_key(version)
    here = found.target == version
    past = any(version_key(one) > key for one in (*found.apis, found.target) if one)
    command = ""
    if not past and (here or any(version_key(one)[1] < key[1] for one in found.apis)):
        _require_next(min(found.apis, key=version_key), version)
        command = _command(replace(found, version=found.api_version), version, control_plane=True) or NODE
    return UpgradePlan(
        before=found.version,
        version=version,
        command=command,
        programs=(),
        kubelet=False,
        note=False,
        api_before=found.api_version,
        step=True,
    )


def _require_next(oldest: str, version: str) -> None:
    if version_key(version)[1] - version_key(oldest)[1] > 1:
        raise ComponentError(
            f"expected a release at most one minor version newer than {oldest}, got {version}",
            reason=Reason.RELEASE_SKEW,
        )


def _command(found: Observed, version: str, *, control_plane: bool) -> str:
    if control_plane and (found.cluster_version != version or found.command == APPLY):
        return APPLY
    behind = version not in (found.version, found.configured)
    return NODE if found.command or found.pods or behind else ""
