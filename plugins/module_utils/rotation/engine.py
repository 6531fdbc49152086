# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Common functions of all rotations: check that all nodes answered, and find the phases that are left. Pure.

    inspect ──▶ plan ──▶ phase ──▶ inspect ──▶ plan ──▶ …

Each node reports its state, the plan depends only on these reports, and its first phase is run. No state of a rotation
is stored: an interrupted run and a new run start with the same inspection. A rotation consists of its phases in order,
and of one check for each phase that returns whether the phase is done on a node.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from ..errors import KubeadmError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

Phase = TypeVar("Phase", bound=Enum)
One = TypeVar("One")


def require_all(what: str, answered: Collection[str], known: Collection[str]) -> None:
    """Raise ROTATION_NODES_UNREACHED unless ``answered`` equals ``known`` and is not empty."""
    if set(answered) != set(known) or not answered:
        raise KubeadmError(
            f"expected what every {what} of the cluster has ({_listed(known)}), got that of {_listed(answered)}",
            reason=Reason.ROTATION_NODES_UNREACHED,
        )


def undone(found: Iterable[One], checks: Mapping[Phase, Callable[[One], bool]]) -> dict[Phase, tuple[One, ...]]:
    """Return for each phase the nodes of ``found`` on which it is not done."""
    every = tuple(found)
    return {phase: tuple(one for one in every if not check(one)) for phase, check in checks.items()}


def phases_left(phases: Iterable[Phase], *left: Mapping[Phase, Collection[object]]) -> tuple[Phase, ...]:
    """Return, in their order, the ``phases`` that have an undone item in any of ``left``."""
    return tuple(phase for phase in phases if any(one.get(phase) for one in left))


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
