# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which step the rotation of the key for Secrets at rest takes next, from what is found and from nothing else. Pure.

    make ──▶ share ──▶ lead ──▶ rewrite ──▶ retire ──▶ done

    make     a new key, last in the file of one control plane
    share    every control plane can read whatever any of them writes; every API server has taken its file
    lead     the new key first everywhere: from here on nothing is written under an old one
    rewrite  every Secret that etcd has under another key is written again
    retire   the new key alone in every file

There is no record of a rotation that could lie: a run that was stopped anywhere begins by looking, as a new one does.
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
"""The provider that closes nothing: in an order of names it stands for "in clear"."""

KEY_NAME = re.compile(r"key-([1-9][0-9]{0,5})(?:-([0-9a-f]{16}))?")
"""The name of a key: its number and, of every key after the first, digits of its fingerprint."""


class RotationPhase(Enum):
    """The steps, in their order."""

    MAKE = "make"
    SHARE = "share"
    LEAD = "lead"
    REWRITE = "rewrite"
    RETIRE = "retire"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneKeys:
    """One control plane: fingerprints by name, in the order of its file, and whether its API server uses that file.

    ``clear_first``: Secrets are written in clear.
    """

    name: str
    keys: Mapping[str, str]
    taken: bool
    clear_first: bool = False

    @property
    def order(self) -> tuple[str, ...]:
        """The names in the order of the file, `CLEAR` first where that is first."""
        return (*((CLEAR,) if self.clear_first else ()), *self.keys)

    @property
    def lead(self) -> str:
        """The key that it writes with; empty where it has none."""
        return next(iter(self.order), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKeys:
    """Everything that was found.

    Each control plane that answered, the names of all that the cluster has, and how many Secrets etcd has by key.
    """

    planes: Sequence[PlaneKeys]
    members: frozenset[str]
    stored: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationPlan:
    """What is left of a rotation, none at its end.

    ``successor``: the key that stays; empty before it is made. ``source`` gives ``missing`` (names by control plane).
    ``orders``: what each control plane's file is to hold after the first of ``phases``.
    """

    phases: tuple[RotationPhase, ...]
    successor: str
    source: str
    missing: Mapping[str, tuple[str, ...]]
    orders: Mapping[str, tuple[str, ...]]


def plan_rotation(found: FoundKeys, *, old: str) -> RotationPlan:
    """Return what is to do until nothing is left of the key ``old``.

    Raises ROTATION_NODES_UNREACHED (not every control plane answered, or more than the cluster has),
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
    return _goes_on(found, successor)


def _all_phases(known: set[str]) -> tuple[RotationPhase, ...]:
    """Return the whole way; where there was no key before there is none to remove."""
    return tuple(phase for phase in RotationPhase if known or phase is not RotationPhase.RETIRE)


def key_number(name: str) -> int:
    """Return the number in a key's name; 0 for names that are not ours, which are older than all of ours."""
    match = KEY_NAME.fullmatch(name)
    return int(match[1]) if match else 0


def next_number(names: Iterable[str]) -> int:
    """Return the number of a key that is newer than all of ``names``."""
    return max(map(key_number, names), default=0) + 1


def _goes_on(found: FoundKeys, successor: str) -> RotationPlan:
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
    if phases[0] in orders:  # one is there: of the old key nothing is left after the last
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
    """Return the plan; without ``orders`` each file keeps its order and gets at its end what the source gives."""
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
    """Return the keys that everybody must have: what is written with now, what etcd has, and what is to come."""
    stored = {name for name, count in found.stored.items() if count}
    leads = {name for plane in found.planes for name in plane.order[:1]}
    return frozenset({successor, *leads, *stored} - {CLEAR})


def _source(found: FoundKeys, needed: frozenset[str]) -> PlaneKeys:
    """Return the first control plane that has a needed key which another one lacks, else the first of all."""
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
            f"expected the keys that Secrets in etcd are closed with, {', '.join(lost)} is on no control plane",
            reason=Reason.ENCRYPTION_KEY_LOST,
        )


def _newest(names: Iterable[str]) -> str:
    return max(names, key=lambda name: (key_number(name), name), default="")


def _newest_last(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (key_number(name), name))


def _newest_first(names: Iterable[str]) -> list[str]:
    return _newest_last(names)[::-1]
