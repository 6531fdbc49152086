# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches in Maude: whether a state is reachable, the number of states, and the steps to it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MODEL = Path(__file__).resolve().parents[1] / "model" / "join.maude"

_STATES = re.compile(r"^states: (\d+)", re.MULTILINE)
_SOLUTION = re.compile(r"^Solution 1 \(state (\d+)\)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The start of a search: boot of the machine, number of runs of it, number of sessions of the key service.

    ``claims``: machine and AK of existing challenges, one for each session from the first on.
    """

    boot: str = "good"
    runs: int = 1
    sessions: int = 1
    claims: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return the term."""
        term = f"world({self.boot}, {self.runs}, {self.sessions})"
        for machine, key in self.claims:
            term = f"challenged({term}, {machine}, {key})"
        return term


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The result of a search: number of states, and the labels of the steps to a match (None without a match)."""

    states: int
    path: tuple[str, ...] | None


def search_all(weakened: str, world: World, conditions: Sequence[str]) -> list[Search]:
    """Return one search for each condition on a reachable world ``Z:World``, in a copy that lacks ``weakened``."""
    first = _run(_copy(weakened), *(_question(world, condition) for condition in conditions))
    blocks = first.split("==========================================\n")[1:]
    if len(blocks) != len(conditions):
        raise AssertionError(f"expected {len(conditions)} searches, got:\n{first}")
    return [_search(weakened, world, condition, block) for condition, block in zip(conditions, blocks, strict=True)]


def _search(weakened: str, world: World, condition: str, block: str) -> Search:
    states, found = _STATES.search(block), _SOLUTION.search(block)
    if states is None or (found is None and "No solution." not in block):
        raise AssertionError(f"expected the outcome of a search, got:\n{block}")
    path = None
    if found is not None:
        shown = _run(_copy(weakened), _question(world, condition), f"show path labels {found[1]} .")
        path = tuple(re.findall(r"^([a-z-]+)$", shown, re.MULTILINE))
    return Search(states=int(states[1]), path=path)


def _copy(weakened: str) -> str:
    return f"load {MODEL}\nmod COPY is including JOIN . eq weakened = {weakened} . endm"


def _question(world: World, condition: str) -> str:
    return f"search [1] in COPY : {world} =>* Z:World such that {condition} ."


def _run(*lines: str) -> str:
    argv = ["maude", "-no-banner", "-no-advise", "-no-wrap", "-batch", "-no-ansi-color"]
    done = subprocess.run(
        argv, input="\n".join(lines), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    if "Warning" in done.stdout or "Error" in done.stdout:
        raise AssertionError(done.stdout)
    return done.stdout
