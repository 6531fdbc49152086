# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of each node of a recovery, and the table that says it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class State(Enum):
    """How a node stands after its turn."""

    RECOVERED = "recovered"
    READY = "can be recovered"
    ALREADY = "another was first"
    SILENT = "does not answer"
    FAILED = "failed"


_SILENT = frozenset({Reason.CONNECTION_CLOSED, Reason.CONNECTION_TIMEOUT, Reason.PEER_UNREACHABLE})
_HEAD = ("node", "role", "result", "seconds", "code", "what to do")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One node: ``reason`` None where it was recovered, else why not, in words and with a hint.

    ``sent``: whether its key was to be sent at all; without, nobody knows but that the node was judged as good.
    """

    node: str
    endpoint: str
    role: str
    seconds: float
    reason: Reason | None = None
    message: str = ""
    hint: str = ""
    sent: bool = True

    @property
    def state(self) -> State:
        """How the node stands: one that rejoined, or that another admin was faster at, needs nobody."""
        if self.reason is None:
            return State.RECOVERED if self.sent else State.READY
        if self.reason is Reason.RECOVERY_RACE_LOST:
            return State.ALREADY
        return State.SILENT if self.reason in _SILENT else State.FAILED


def needs_a_person(outcomes: Iterable[Outcome]) -> bool:
    """Say whether any node is left that was neither recovered nor another was first at."""
    return any(one.state in (State.FAILED, State.SILENT) for one in outcomes)


def table(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the lines of one table: a head, a line a node in the order given, a sentence at the end."""
    rows = [_HEAD, *(_row(one) for one in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return (*lines, _sentence(outcomes))


def _row(one: Outcome) -> tuple[str, ...]:
    code = one.reason.name if one.reason else "-"
    hint = one.hint if one.state in (State.FAILED, State.SILENT) else "-"
    return (one.node, one.role, one.state.value, f"{one.seconds:.1f}", code, hint)


def _sentence(outcomes: Sequence[Outcome]) -> str:
    counted = {state: sum(one.state is state for one in outcomes) for state in State}
    parts = [f"{count} {state.value}" for state, count in counted.items() if count]
    return f"{len(outcomes)} nodes: {', '.join(parts)}" if parts else "0 nodes"
