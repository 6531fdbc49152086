# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the upgrades of nodes to a release of the table. Pure, except `run_info`.

Kubernetes has two rules. kubeadm upgrades a control plane by one minor version at a time and never downgrades.
A kubelet may be up to three minor versions older than the API server and is never newer, so a kubelet is upgraded
once, after all minor versions of the API servers (docs/adr/0070, docs/adr/0077).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ComponentError
from ..reasons import Reason
from ..result import Result
from .versions import is_pinned, is_version, load_table, version_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .versions import Release, Table

KUBELET_SKEW = 3
"""How many minor versions a kubelet may be older than the API server."""
CONTROL_PLANE_SKEW = 1
"""How many minor versions two control planes may differ."""
_ROLES = ("control-plane", "worker")
_OLDEST_KUBELET = "a kubelet may be up to three minor versions older than the API server"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNode:
    """One node and the version of its kubelet; ``api_version``: version of its API server, if known."""

    name: str
    version: str
    control_plane: bool
    api_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One upgrade of ``nodes``, either control planes or workers, to ``release``; ``why`` is its reason.

    ``kubelets``: also upgrade their kubelets, which drains each node.
    """

    release: str
    nodes: tuple[str, ...]
    workers: bool
    kubelets: bool
    why: str


def upgrade_path(nodes: Sequence[RunningNode], wanted: str, table: Table) -> tuple[Step, ...]:
    """Return the upgrades in order, none if all nodes run ``wanted`` (a version, or a minor for its default).

    Raises RELEASE_UNKNOWN (``wanted``, a running version or a minor between them), RELEASE_DOWNGRADE, and RELEASE_SKEW
    if the versions of the nodes differ too much.
    """
    target = table.release_for(wanted).kubernetes
    _require_versions(nodes)
    _require_no_downgrade(nodes, target)
    planes = {node.name: node.api_version or node.version for node in nodes if node.control_plane}
    kubelets = {node.name: node.version for node in nodes}
    _require_skew(planes, kubelets)
    steps: list[Step] = []
    for release in _releases_on_the_way(planes, target, table):
        if late := [name for name, version in kubelets.items() if _minor(version) < _minor(release) - KUBELET_SKEW]:
            reached = min(planes.values(), key=version_key)
            steps += _kubelet_steps(reached, late, planes, f"{_OLDEST_KUBELET}, which goes to {release} next")
            kubelets |= dict.fromkeys(late, reached)
        if behind := _older(planes, release):
            last = release == target
            steps.append(_step(release, behind, workers=False, kubelets=last, why=_why(planes, release, target)))
            planes |= dict.fromkeys(behind, release)
            kubelets |= dict.fromkeys(behind, release) if last else {}
    steps += _kubelet_steps(target, _older(kubelets, target), planes, f"once, after the API servers: {_OLDEST_KUBELET}")
    return tuple(steps)


def _kubelet_steps(release: str, names: Sequence[str], planes: Mapping[str, str], why: str) -> list[Step]:
    """Return the upgrades of kubelets, those of control planes first."""
    parts = ([one for one in names if one in planes], [one for one in names if one not in planes])
    return [_step(release, one, workers=one is parts[1], kubelets=True, why=why) for one in parts if one]


def _releases_on_the_way(planes: Mapping[str, str], target: str, table: Table) -> list[str]:
    """Return the releases of the control planes in order; raises RELEASE_UNKNOWN."""
    if not planes:
        return []
    oldest = min(planes.values(), key=version_key)
    between = [f"1.{minor}" for minor in range(_minor(oldest) + 1, _minor(target))]
    if unknown := [minor for minor in between if minor not in table.defaults]:
        raise ComponentError(
            f"{oldest} -> {target} goes by {', '.join(between)}, and the table has no release of {', '.join(unknown)}",
            reason=Reason.RELEASE_UNKNOWN,
        )
    return [*(table.defaults[minor] for minor in between), target]


def _why(planes: Mapping[str, str], release: str, target: str) -> str:
    oldest = min(planes.values(), key=version_key)
    between = ", ".join(f"1.{minor}" for minor in range(_minor(oldest) + 1, _minor(target)))
    if between:
        return f"{oldest} -> {target} goes by {between}: kubeadm upgrades one minor version at a time"
    return "the next minor version" if _minor(release) > _minor(oldest) else "a newer patch of the same minor version"


def require_steps(steps: Sequence[str], target: str) -> None:
    """Raise RELEASE_SKEW unless ``steps`` rise by one minor version each, up to the one before that of ``target``."""
    last = _minor(target)
    if [_minor(version) for version in steps] != list(range(last - len(steps), last)):
        raise ComponentError(
            f"expected steps that rise by one minor version each up to the one before {target}, got {', '.join(steps)}",
            reason=Reason.RELEASE_SKEW,
        )


def _require_versions(nodes: Sequence[RunningNode]) -> None:
    versions = [(node.name, one) for node in nodes for one in (node.version, node.api_version) if one]
    if wrong := [f"{name}: {version!r}" for name, version in versions if not is_version(version)]:
        raise ComponentError(
            f"expected nodes to run a version such as 1.35.4, got {', '.join(wrong)}", reason=Reason.RELEASE_UNKNOWN
        )


def _require_no_downgrade(nodes: Sequence[RunningNode], target: str) -> None:
    running = {one.name: max(one.version, one.api_version or one.version, key=version_key) for one in nodes}
    if newer := [f"{name} runs {one}" for name, one in running.items() if version_key(one) > version_key(target)]:
        raise ComponentError(
            f"expected a version that is not older than what the nodes run, got {target}: {', '.join(newer)}",
            reason=Reason.RELEASE_DOWNGRADE,
        )


def _require_skew(planes: Mapping[str, str], kubelets: Mapping[str, str]) -> None:
    """Raise RELEASE_SKEW with all versions that differ too much."""
    minors = {_minor(version) for version in planes.values()}
    if not minors:
        return
    problems = []
    if max(minors) - min(minors) > CONTROL_PLANE_SKEW:
        problems.append(f"expected control planes at most one minor version apart, got {_listed(planes)}")
    newer = {name: one for name, one in kubelets.items() if name not in planes and _minor(one) > min(minors)}
    older = {name: one for name, one in kubelets.items() if _minor(one) < max(minors) - KUBELET_SKEW}
    if newer:
        problems.append(f"expected no worker newer than the control planes ({_listed(planes)}), got {_listed(newer)}")
    if older:
        problems.append(
            f"expected kubelets at most three minor versions older than the control planes ({_listed(planes)}), "
            f"got {_listed(older)}"
        )
    if problems:
        raise ComponentError("; ".join(problems), reason=Reason.RELEASE_SKEW)


def _step(release: str, names: Sequence[str], *, workers: bool, kubelets: bool, why: str) -> Step:
    return Step(release=release, nodes=tuple(sorted(names)), workers=workers, kubelets=kubelets, why=why)


def _older(versions: Mapping[str, str], release: str) -> list[str]:
    return [name for name, version in versions.items() if version_key(version) < version_key(release)]


def _minor(version: str) -> int:
    return version_key(version)[1]


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


# Module `release_info`.


def run_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001
    """Return the table, the nodes by release, and the upgrades to the wanted release or the refusal.

    Raises RELEASE_TABLE_MALFORMED.
    """
    files = Path(params["files_dir"])
    table = load_table(files / "releases")
    nodes = [_running(row) for row in params["nodes"] if row.get("registered")]
    newest = list(table.defaults.values())[-1]
    wanted = params["wanted"] or newest
    steps: tuple[Step, ...] = ()
    refused = {}
    try:
        wanted = table.release_for(wanted).kubernetes
        steps = upgrade_path(nodes, wanted, table)
    except ComponentError as error:
        refused = {"reason": error.code, "message": error.message, "command": error.reason.value.command}
    return Result(
        values={
            "releases": [
                {
                    **_shown(release, table),
                    "default": release.kubernetes in table.defaults.values(),
                    "bundle": is_pinned(release, files / "go"),
                    "nodes": [node.name for node in nodes if node.version == release.kubernetes],
                }
                for release in sorted(
                    table.releases.values(), key=lambda one: version_key(one.kubernetes), reverse=True
                )
            ],
            "others": {node.name: node.version for node in nodes if node.version not in table.releases},
            "wanted": wanted,
            "newest": newest,
            "steps": [
                {
                    "release": step.release,
                    "nodes": list(step.nodes),
                    "workers": step.workers,
                    "kubelets": step.kubelets,
                    "why": step.why,
                }
                for step in steps
            ],
            "refused": refused,
        }
    )


def _running(row: Mapping[str, Any]) -> RunningNode:
    name, version, role = (str(row.get(key) or "") for key in ("name", "version", "role"))
    if not (name and version and role in _ROLES):
        raise ComponentError(
            f"expected name, version and role ({' or '.join(_ROLES)}) of a node, got {dict(row)!r}",
            reason=Reason.OPTION_INVALID,
        )
    return RunningNode(
        name=name,
        version=version.removeprefix("v"),
        control_plane=role == _ROLES[0],
        api_version=str(row.get("api_version") or ""),
    )


def _shown(release: Release, table: Table) -> dict[str, Any]:
    own = {name for name, component in table.components.items() if component.module == "k8s.io/kubernetes"}
    return {
        "kubernetes": release.kubernetes,
        "components": {name: version for name, version in release.versions.items() if name not in own},
        "unpinned": sorted(name for name, hashes in release.hashes.items() if not hashes),
    }
