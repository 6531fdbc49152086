# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the next phase of a rotation of the key for Secrets at rest, only from the inspected state. Pure.

    make ──▶ share ──▶ lead ──▶ rewrite ──▶ retire ──▶ done

    make     add a new key as the last one in the file of one control plane
    share    give every control plane all keys that any of them uses, and restart every API server with its file
    lead     put the new key first on every control plane: all writes use it from then on
    rewrite  write every Secret again that etcd has under another key
    retire   remove all other keys from every file

No state of a rotation is stored, so none can be wrong: an interrupted run and a new run start with the same inspection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import KubeadmError
from ..reasons import Reason
from .engine import phases_left, require_all, undone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


CLEAR = "identity"
"""The provider that does not encrypt: in an order of names it means "in clear text"."""

KEY_NAME = re.compile(r"key-([1-9][0-9]{0,5})(?:-([0-9a-f]{16}))?")
"""The name of a key: its number and, for every key after the first, digits of its fingerprint."""


class RotationPhase(Enum):
    """The phases, in their order."""

    MAKE = "make"
    SHARE = "share"
    LEAD = "lead"
    REWRITE = "rewrite"
    RETIRE = "retire"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneKeys:
    """One control plane: fingerprints by key name, in the order of its file.

    ``taken``: its API server uses that file. ``clear_first``: Secrets are written in clear text.
    """

    name: str
    keys: Mapping[str, str]
    taken: bool
    clear_first: bool = False

    @property
    def order(self) -> tuple[str, ...]:
        """The names in the order of the file, with `CLEAR` first if Secrets are written in clear text."""
        return (*((CLEAR,) if self.clear_first else ()), *self.keys)

    @property
    def lead(self) -> str:
        """The name of the key for new writes, or `CLEAR`; empty if there is no key."""
        return next(iter(self.order), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKeys:
    """The inspected state.

    ``planes``: the control planes that answered. ``members``: the names of all control planes of the cluster.
    ``stored``: the number of Secrets in etcd by key name.
    """

    planes: Sequence[PlaneKeys]
    members: frozenset[str]
    stored: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationPlan:
    """The phases of a rotation that are left; none at its end.

    ``successor``: the new key's name, empty before it is created. ``source``: the control plane that provides the keys
    ``missing`` (names by control plane). ``orders``: the key names in each control plane's file after the first phase.
    """

    phases: tuple[RotationPhase, ...]
    successor: str
    source: str
    missing: Mapping[str, tuple[str, ...]]
    orders: Mapping[str, tuple[str, ...]]


def plan_rotation(found: FoundKeys, *, old: str) -> RotationPlan:
    """Return the phases until the key ``old`` is removed.

    Raises ROTATION_NODES_UNREACHED (the inspected control planes are not exactly those of the cluster),
    ENCRYPTION_KEYS_DIFFER (one name, two keys), ENCRYPTION_KEY_LOST (Secrets under a key that is in no file).
    """
    answered = {plane.name for plane in found.planes}
    require_all("control plane", answered, found.members)
    _require_one_meaning(found.planes)
    known = {name for plane in found.planes for name in plane.keys}
    _require_readable(found.stored, known)
    if not _is_in_use(found, old):
        waits = () if all(plane.taken for plane in found.planes) else (RotationPhase.SHARE,)
        return _plan(waits, successor=_newest(known), found=found)
    successor = _newest(name for name in known if key_number(name) > key_number(old))
    if not successor:
        return _plan(_all_phases(known), successor="", found=found)
    return _continued(found, successor)


def _all_phases(known: set[str]) -> tuple[RotationPhase, ...]:
    """Return all phases; without an earlier key there is no RETIRE, because no key has to be removed."""
    return tuple(phase for phase in RotationPhase if known or phase is not RotationPhase.RETIRE)


def key_number(name: str) -> int:
    """Return the number in a key's name; 0 for other names, which count as older than all numbered keys."""
    match = KEY_NAME.fullmatch(name)
    return int(match[1]) if match else 0


def next_number(names: Iterable[str]) -> int:
    """Return the number for a key that is newer than all of ``names``."""
    return max(map(key_number, names), default=0) + 1


def _continued(found: FoundKeys, successor: str) -> RotationPlan:
    needed = _needed(found, successor)
    retired = (successor,)
    leading = (successor, *_newest_first(needed - {successor}))
    planes = undone(
        found.planes,
        {
            RotationPhase.SHARE: lambda plane: plane.taken and needed <= set(plane.keys),
            RotationPhase.LEAD: lambda plane: plane.lead == successor,
            RotationPhase.RETIRE: lambda plane: plane.order == retired,
        },
    )
    secrets = {RotationPhase.REWRITE: [name for name, count in found.stored.items() if count and name != successor]}
    phases = phases_left(RotationPhase, planes, secrets)
    orders = {RotationPhase.LEAD: leading, RotationPhase.RETIRE: retired}
    if phases[0] in orders:  # at least one phase is left, because the old key is still in use
        wanted = {plane.name: orders[phases[0]] for plane in found.planes}
        return _plan(phases, successor=successor, found=found, orders=wanted)
    return _plan(phases, successor=successor, found=found, needed=needed)


def _plan(
    phases: tuple[RotationPhase, ...],
    *,
    successor: str,
    found: FoundKeys,
    orders: Mapping[str, tuple[str, ...]] | None = None,
    needed: frozenset[str] = frozenset(),
) -> RotationPlan:
    """Return the plan; without ``orders`` each file keeps its order, and the missing keys are appended."""
    source = _source(found, needed)
    gives = needed & set(source.keys)
    missing = {plane.name: tuple(_newest_last(gives - set(plane.keys))) for plane in found.planes}
    return RotationPlan(
        phases=phases,
        successor=successor,
        source=source.name,
        missing={name: names for name, names in missing.items() if names},
        orders=orders or {plane.name: (*plane.order, *missing[plane.name]) for plane in found.planes},
    )


def _needed(found: FoundKeys, successor: str) -> frozenset[str]:
    """Return the keys that every control plane must have: for new writes, of Secrets in etcd, and the successor."""
    stored = {name for name, count in found.stored.items() if count}
    leads = {name for plane in found.planes for name in plane.order[:1]}
    return frozenset({successor, *leads, *stored} - {CLEAR})


def _source(found: FoundKeys, needed: frozenset[str]) -> PlaneKeys:
    """Return the first control plane that has a needed key which another control plane lacks, else the first one."""
    planes = sorted(found.planes, key=lambda plane: plane.name)
    for plane in planes:
        own = needed & set(plane.keys)
        if any(own - set(other.keys) for other in planes):
            return plane
    return planes[0]


def _is_in_use(found: FoundKeys, name: str) -> bool:
    if found.stored.get(name):
        return True
    if name == CLEAR:
        return any(plane.lead in (CLEAR, "") for plane in found.planes)
    return any(name in plane.keys for plane in found.planes)


def _require_one_meaning(planes: Sequence[PlaneKeys]) -> None:
    meant: dict[str, str] = {}
    for plane in planes:
        for name, fingerprint in plane.keys.items():
            if meant.setdefault(name, fingerprint) != fingerprint:
                raise KubeadmError(
                    f"expected one key under the name {name}, {plane.name} has another one than the others",
                    reason=Reason.ENCRYPTION_KEYS_DIFFER,
                )


def _require_readable(stored: Mapping[str, int], known: set[str]) -> None:
    lost = sorted(name for name, count in stored.items() if count and name not in known and name != CLEAR)
    if lost:
        raise KubeadmError(
            f"expected the keys that encrypt Secrets in etcd, {', '.join(lost)} is on no control plane",
            reason=Reason.ENCRYPTION_KEY_LOST,
        )


def _newest(names: Iterable[str]) -> str:
    return max(names, key=lambda name: (key_number(name), name), default="")


def _newest_last(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (key_number(name), name))


def _newest_first(names: Iterable[str]) -> list[str]:
    return _newest_last(names)[::-1]
