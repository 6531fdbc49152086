# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes of an inventory are recovered, by which disk: control planes first. Pure.

Who is not admitted has no place in the cluster, so nothing is sent to it and its silence is no failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import SiteError
from ..keys import DiskId
from ..policy import Admission, Role
from ..reasons import Reason
from .assigned_disks import disk_in, require_own_disks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .identities import InventoryNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node that is to be recovered; ``disk`` is None where nobody wrote down which one was assigned to it."""

    name: str
    role: Role
    disk: DiskId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The nodes in their order, and who of those that were named is left out, each with the reason in words."""

    candidates: tuple[Candidate, ...]
    left_out: Mapping[str, str]


def make_roster(names: Iterable[str], nodes: Iterable[InventoryNode], files: Mapping[str, bytes]) -> Roster:
    """Return whom of ``names`` to recover; ``files`` are the site's own in a recovery kit, for ids that the site lacks.

    Raises SITE_INVENTORY for a name that is no node, where nobody is left, and for two nodes with one disk.
    """
    known = {one.name: one for one in nodes}
    wanted = sorted(set(names))
    strange = [name for name in wanted if name not in known]
    if strange:
        raise SiteError(
            f"expected hosts of control_planes or workers, got {', '.join(strange)}", reason=Reason.SITE_INVENTORY
        )
    disks = {name: one.disk or _kept(name, files) for name, one in known.items()}
    require_own_disks(disks)
    left_out = {name: why for name in wanted if (why := _left_out(known[name]))}
    chosen = [known[name] for name in wanted if name not in left_out]
    if not chosen:
        raise SiteError(f"expected at least one admitted node, got {_told(left_out)}", reason=Reason.SITE_INVENTORY)
    candidates = tuple(
        Candidate(name=one.name, role=one.role, disk=DiskId(disks[one.name]) if disks[one.name] else None)
        for one in sorted(chosen, key=lambda one: one.role is not Role.CONTROL_PLANE)
    )
    return Roster(candidates=candidates, left_out=left_out)


def _kept(name: str, files: Mapping[str, bytes]) -> str:
    place = f"host_vars/{name}/identity.yml"
    return disk_in(files.get(place, b""), place=f"{place} of the kit")


def _left_out(node: InventoryNode) -> str:
    if node.ek_sha256 is None:
        return "nobody enrolled its machine"
    return "" if node.admission is Admission.APPROVED else f"its machine is {node.admission.value}"


def _told(left_out: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in left_out.items()) or "none"
