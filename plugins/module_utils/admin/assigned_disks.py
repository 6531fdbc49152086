# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the disk id that the cluster assigned to each machine, in the host variables of the site. Pure.

A disk's key is derived from its id, and a cluster that is down cannot be read. So the site stores the ids, and with
its files the recovery kit has them. The key service writes the id into the identity's status; what a machine reports
is never used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import PolicyError, SiteError
from ..keyservice.derive import DiskId
from ..policy.identity import Admission, Role
from ..reasons import Reason
from .identities import DISK_VARIABLE, malformed_variables, require_own_disks, variables_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .identities import InventoryNode


_HEADER = b"---\n# Written by attested.kubernetes.node: which id the cluster assigned to the disk. Commit it.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedDisk:
    """The disk id of one node as the site has it (empty: none), and as the cluster assigned it."""

    node: str
    before: str
    disk: DiskId

    @property
    def exchanged(self) -> str:
        """Return a message for the admin if the site had another id, else an empty text."""
        if self.before in {"", self.disk.uuid}:
            return ""
        return f"the site had the disk {self.before} of {self.node}, the cluster assigned {self.disk.uuid}"


def plan_disks(nodes: Iterable[InventoryNode], identities: Iterable[Mapping[str, Any]]) -> tuple[AssignedDisk, ...]:
    """Return each node whose machine has an assigned disk; ``identities`` are those of `policy_record`.

    A machine without a disk in the cluster stays as the site has it: it may have taken over the disk of the machine
    before it. Raises IDENTITY_AMBIGUOUS for two ids of one machine, and SITE_INVENTORY for two nodes with one disk,
    because each would get the other's key.
    """
    known = _by_key(identities)
    every = tuple(nodes)
    found = tuple(
        AssignedDisk(node=one.name, before=one.disk, disk=known[one.ek_sha256])
        for one in every
        if one.ek_sha256 in known
    )
    require_own_disks({**{one.name: one.disk for one in every}, **{one.node: one.disk.uuid for one in found}})
    return found


def disk_in(text: bytes, *, place: str) -> str:
    """Return the disk id in a file of host variables, empty if it has none; raises SITE_INVENTORY."""
    return str(variables_in(text, place=place).get(DISK_VARIABLE) or "")


def with_disk(text: bytes, disk: DiskId, *, place: str) -> bytes:
    """Return a file of host variables with ``disk``, otherwise unchanged; b"" is a file that does not exist yet.

    Raises SITE_INVENTORY with the line to write by hand if the variable cannot be a line of its own.
    """
    before = variables_in(text, place=place)
    if before.get(DISK_VARIABLE) == disk.uuid:
        return text
    kept = b"".join(line for line in _lines(text or _HEADER) if not line.startswith(f"{DISK_VARIABLE}:".encode()))
    after = kept + f"{DISK_VARIABLE}: {disk.uuid}\n".encode()
    if variables_in(after, place=place) != {**before, DISK_VARIABLE: disk.uuid}:
        raise malformed_variables(place, f"a line a variable, so that {DISK_VARIABLE}: {disk.uuid} can be added")
    return after


def _by_key(identities: Iterable[Mapping[str, Any]]) -> dict[str, DiskId]:
    known: dict[str, DiskId] = {}
    for one in identities:
        key, reported = str(one["ek_sha256"]), str(one.get("disk_id") or "")
        if not reported:
            continue
        disk = known.setdefault(key, DiskId(reported))
        if disk.uuid != reported:
            raise PolicyError(
                f"expected one disk of the machine {key}, the control planes report {disk.uuid} and {reported}",
                reason=Reason.IDENTITY_AMBIGUOUS,
            )
    return known


def _lines(text: bytes) -> list[bytes]:
    whole = text if text.endswith(b"\n") else text + b"\n"
    return whole.splitlines(keepends=True)


# The nodes of an inventory to recover and their disks, control planes first. Pure.
#
# A machine that is not admitted is no node of the cluster: no key is sent to it, and its silence is no failure.


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node to recover; ``disk`` is None if neither the site nor the kit has its disk id."""

    name: str
    role: Role
    disk: DiskId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The nodes to recover, in order, and each named node that is left out with the reason in words."""

    candidates: tuple[Candidate, ...]
    left_out: Mapping[str, str]


def make_roster(names: Iterable[str], nodes: Iterable[InventoryNode], files: Mapping[str, bytes]) -> Roster:
    """Return the nodes of ``names`` to recover; ``files`` are a recovery kit's, for ids that the site does not have.

    Raises SITE_INVENTORY for a name that is no node, if no node is left, and for two nodes with one disk.
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
        raise SiteError(f"expected at least one admitted node, got {_listed(left_out)}", reason=Reason.SITE_INVENTORY)
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
        return "its machine is not enrolled"
    return "" if node.admission is Admission.APPROVED else f"its machine is {node.admission.value}"


def _listed(left_out: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in left_out.items()) or "none"
