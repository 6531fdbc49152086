# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which step a rotation of the master secret takes next, from what is found and from nothing else (ADR 0042). Pure.

    make ──▶ share ──▶ lead ──▶ rekey ──▶ retire ──▶ forget ──▶ done

    make     a new version in the site, beside the one that is in force
    share    every key service holds both, the old one leading: a ticket of any of them opens any disk
    lead     the new one leads: disks that are made from here on are under it
    rekey    every disk is under the key of the new one, and under no other
    retire   every key service holds the new one alone
    forget   so does the site

A key service that was not started with what lies on its machine counts as one that lacks it: `share`.
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
    """The steps, in their order."""

    MAKE = "make"
    SHARE = "share"
    LEAD = "lead"
    REKEY = "rekey"
    RETIRE = "retire"
    FORGET = "forget"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneVersions:
    """One control plane: the versions that it holds, the leading one first, and whether its key service took them."""

    name: str
    names: tuple[str, ...]
    taken: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVersions:
    """Everything that was found.

    ``site`` are the versions that the site has, ``planes`` the control planes that answered, ``members`` all that the
    cluster has. ``disks`` says of each node that answered under which version its disk is: None for a node without a
    disk, "" for one whose disk is between two versions, or says nothing; ``nodes`` are all that the cluster has.
    """

    site: tuple[str, ...]
    planes: Sequence[PlaneVersions]
    members: frozenset[str]
    disks: Mapping[str, str | None]
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterPlan:
    """What is left of a rotation, none at its end.

    ``successor``: the version that stays; "" before it is made. ``order``: what every key service is to hold after the
    first of ``phases``, the leading one first. ``disks``: the nodes whose disk is not under the successor.
    """

    phases: tuple[MasterPhase, ...]
    successor: str
    order: tuple[str, ...]
    disks: tuple[str, ...]


def plan_rotation(found: FoundVersions, *, old: str) -> MasterPlan:
    """Return what is to do until nothing is left of the version ``old``, or of one that was begun and not ended.

    Where ``old`` is "" only what was begun is ended. Raises ROTATION_NODES_UNREACHED (not every node answered, or more
    than the cluster has), MASTER_SECRETS_DIFFER (somebody has a version that the site lacks), MASTER_SECRET_UNKNOWN.
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
    """Return what every key service must hold now: the successor, what leads anywhere, and what disks are under.

    A disk that says nothing may be under any version that the site has.
    """
    leads = {name for one in found.planes for name in one.names[:1]}
    disks = {name for name in found.disks.values() if name}
    silent = set(found.site) if "" in found.disks.values() else set()
    return frozenset({successor} | leads | disks | silent)


def _order(
    left: Sequence[MasterPhase], found: FoundVersions, successor: str, needed: Collection[str]
) -> tuple[str, ...]:
    """Return what key services hold after the next phase; those that only start anew keep what all of them need."""
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
    """Raise unless ``old`` is older than what stays: a name that nobody ever had, or has yet, is an admin's mistake."""
    if old and version_number(old) >= version_number(successor):
        raise KeyServiceError(
            f"expected a version up to {successor}, which is the newest of the site, got {old}",
            reason=Reason.MASTER_SECRET_UNKNOWN,
        )
