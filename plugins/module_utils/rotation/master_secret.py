# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the next phase of a rotation of the master secret, only from the inspected state (ADR 0042). Pure.

    make ──▶ share ──▶ lead ──▶ rekey ──▶ retire ──▶ forget ──▶ done

    make     create a new version in the site, in addition to the current one
    share    give every key service both versions, the old one leading: tickets of any key service open any disk
    lead     let the new version lead: new disks get its key
    rekey    change every disk to the key of the new version, and to no other
    retire   remove the old version from every key service
    forget   remove the old version from the site

A key service that was not restarted with the versions on its machine counts as one that lacks them: `share`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import KeyServiceError
from ..keyservice.ring import version_number
from ..reasons import Reason
from .engine import phases_left, require_all, undone

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class MasterPhase(Enum):
    """The phases, in their order."""

    MAKE = "make"
    SHARE = "share"
    LEAD = "lead"
    REKEY = "rekey"
    RETIRE = "retire"
    FORGET = "forget"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneVersions:
    """One control plane: its versions, the leading one first; ``taken``: its key service has loaded them."""

    name: str
    names: tuple[str, ...]
    taken: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVersions:
    """The inspected state.

    ``site``: the versions of the site. ``planes``: the control planes that answered. ``members``: all control planes of
    the cluster. ``disks``: the version of the disk of each node that answered; None for a node without a disk, "" for
    a disk between two versions or without the name of a version. ``nodes``: all nodes of the cluster.
    """

    site: tuple[str, ...]
    planes: Sequence[PlaneVersions]
    members: frozenset[str]
    disks: Mapping[str, str | None]
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterPlan:
    """The phases of a rotation that are left; none at its end.

    ``successor``: the new version, "" before it is created. ``order``: the versions of every key service after the
    first phase, the leading one first. ``disks``: the nodes whose disk is not under the successor.
    """

    phases: tuple[MasterPhase, ...]
    successor: str
    order: tuple[str, ...]
    disks: tuple[str, ...]


def plan_rotation(found: FoundVersions, *, old: str) -> MasterPlan:
    """Return the phases until the version ``old`` is removed, or until an interrupted rotation is completed.

    If ``old`` is "", an interrupted rotation is completed and no new one begins. Raises ROTATION_NODES_UNREACHED (the
    inspected nodes are not exactly those of the cluster), MASTER_SECRETS_DIFFER (a node has a version that the site
    lacks), MASTER_SECRET_UNKNOWN.
    """
    planes = {one.name for one in found.planes}
    for what, answered, known in (("control plane", planes, found.members), ("node", set(found.disks), found.nodes)):
        require_all(what, answered, known)
    _require_known(found)
    successor = max(found.site, key=version_number)
    if old == successor:
        return MasterPlan(phases=tuple(MasterPhase), successor="", order=(), disks=_under_others(found, None))
    _require_passed(old, successor)
    needed = _needed(found, successor)
    left = _left(found, successor, needed)
    return MasterPlan(
        phases=left,
        successor=successor,
        order=_order(left, found, successor, needed),
        disks=_under_others(found, successor),
    )


def _left(found: FoundVersions, successor: str, needed: frozenset[str]) -> tuple[MasterPhase, ...]:
    alone = (successor,)
    planes = undone(
        found.planes,
        {
            MasterPhase.SHARE: lambda one: one.taken and needed <= set(one.names),
            MasterPhase.LEAD: lambda one: one.names[:1] == alone,
            MasterPhase.RETIRE: lambda one: one.names == alone,
        },
    )
    others = {
        MasterPhase.REKEY: _under_others(found, successor),
        MasterPhase.FORGET: [name for name in found.site if name != successor],
    }
    return phases_left(MasterPhase, planes, others)


def _needed(found: FoundVersions, successor: str) -> frozenset[str]:
    """Return the versions that every key service needs: the successor, all leading ones, and those of the disks.

    A disk without the name of a version may be under any version of the site.
    """
    leads = {name for one in found.planes for name in one.names[:1]}
    disks = {name for name in found.disks.values() if name}
    silent = set(found.site) if "" in found.disks.values() else set()
    return frozenset({successor} | leads | disks | silent)


def _order(
    left: Sequence[MasterPhase], found: FoundVersions, successor: str, needed: Collection[str]
) -> tuple[str, ...]:
    """Return the versions of the key services after the next phase; SHARE keeps all versions that are needed."""
    others = tuple(name for name in found.site if name != successor)
    if left[:1] == (MasterPhase.SHARE,):
        leads = {name for one in found.planes for name in one.names[:1]}
        kept = tuple(name for name in others if name in needed)
        return (successor, *kept) if leads == {successor} else (*kept, successor)
    if left[:1] == (MasterPhase.LEAD,):
        return (successor, *others)
    return (successor,)


def _under_others(found: FoundVersions, successor: str | None) -> tuple[str, ...]:
    return tuple(sorted(node for node, name in found.disks.items() if name not in (None, successor)))


def _require_known(found: FoundVersions) -> None:
    held = {name: one.name for one in found.planes for name in one.names}
    held |= {name: node for node, name in found.disks.items() if name}
    strange = sorted(set(held) - set(found.site))
    if strange:
        raise KeyServiceError(
            f"expected versions of the master secret that the site has ({', '.join(found.site)}), "
            + ", ".join(f"{held[name]} has {name}" for name in strange),
            reason=Reason.MASTER_SECRETS_DIFFER,
        )
    if any(not one.names for one in found.planes):
        raise KeyServiceError(
            "expected a master secret on every control plane, one has none", reason=Reason.ROTATION_NODES_UNREACHED
        )


def _require_passed(old: str, successor: str) -> None:
    """Raise MASTER_SECRET_UNKNOWN unless ``old`` is "" or older than the successor: a newer version does not exist."""
    if old and version_number(old) >= version_number(successor):
        raise KeyServiceError(
            f"expected a version up to {successor}, which is the newest of the site, got {old}",
            reason=Reason.MASTER_SECRET_UNKNOWN,
        )
