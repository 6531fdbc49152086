# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which phases are still to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .phases import SKIPPED_ON_REPEAT, STARTS_KUBELET, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePosixPath

    from .journal import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The machine as found: the journal, which of the witnesses exist, and whether the kubelet runs."""

    progress: Progress | None
    files: frozenset[PurePosixPath]
    kubelet_active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do of ``table``: ``start_kubelet`` where it has been started once and does not run, ``phases`` in order.

    ``drifted``: all is done, but with another configuration than the one wanted now (nothing is done about it here;
    kubeadm changes a running cluster by its upgrade only).
    """

    table: tuple[Phase, ...]
    phases: tuple[Phase, ...] = ()
    start_kubelet: bool = False
    drifted: bool = False

    def __bool__(self) -> bool:
        """Say whether there is anything to do."""
        return bool(self.phases) or self.start_kubelet

    def up_to(self, until: str | None) -> tuple[Phase, ...]:
        """Return the phases up to and with the one of that name (None: all of them)."""
        if until is None:
            return self.phases
        names = [phase.name for phase in self.table]
        return tuple(phase for phase in self.phases if names.index(phase.name) <= names.index(until))


def plan(table: Sequence[Phase], observed: Observed, *, config_sha256: str) -> Plan:
    """Return the phases of ``table`` that are to be done.

    A phase is done when the journal says so and its witnesses say the same. From the first one that is not done,
    all later ones are repeated: each of kubeadm's phases may run twice, and a later one may build on an earlier.
    A changed configuration repeats everything as long as the operation never came to its end. A kubelet that has been
    started once, and whose start is not among what is left, is to run for the rest.
    """
    done = _done(table, observed)
    complete = len(done) == len(table)
    same = observed.progress is not None and observed.progress.config_sha256 == config_sha256
    if complete:
        return Plan(table=tuple(table), start_kubelet=not observed.kubelet_active, drifted=not same)
    first = _first_undone(table, done) if same else 0
    begun = bool(done)
    left = tuple(phase for phase in table[first:] if not (begun and phase.name in SKIPPED_ON_REPEAT))
    once = STARTS_KUBELET in done and all(phase.name != STARTS_KUBELET for phase in left)
    return Plan(table=tuple(table), phases=left, start_kubelet=once and not observed.kubelet_active)


def witnesses(table: Sequence[Phase]) -> tuple[PurePosixPath, ...]:
    """Return every file whose presence or absence tells of a phase of ``table``."""
    return tuple(path for phase in table for path in (*phase.witnesses, *phase.absent))


def _done(table: Sequence[Phase], observed: Observed) -> tuple[str, ...]:
    said = observed.progress.done if observed.progress else ()
    return tuple(phase.name for phase in table if phase.name in said and _is_witnessed(phase, observed))


def _is_witnessed(phase: Phase, observed: Observed) -> bool:
    return observed.files.issuperset(phase.witnesses) and observed.files.isdisjoint(phase.absent)


def _first_undone(table: Sequence[Phase], done: Sequence[str]) -> int:
    return next(position for position, phase in enumerate(table) if phase.name not in done)
