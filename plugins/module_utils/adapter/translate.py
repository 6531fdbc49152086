# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results and errors of the domain in Ansible's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..errors import AttestedError
    from ..result import Diff, Result


def result_of(result: Result, *, diff_mode: bool) -> dict[str, Any]:
    """Return the keyword arguments for ``exit_json``, which are also the result of an action."""
    answer: dict[str, Any] = {**result.values, "changed": result.changed}
    if diff_mode and result.diff is not None:
        answer["diff"] = _rendered(result.diff)
    if result.warnings:
        answer["warnings"] = list(result.warnings)
    return answer


def failure_of(error: AttestedError) -> dict[str, Any]:
    """Return the keyword arguments for ``fail_json``: what happened, its code, what to do, the next command."""
    return {"msg": error.message, "reason": error.code, "hint": error.hint, "command": error.reason.value.command}


def _rendered(diff: Diff) -> dict[str, Any]:
    sides = {"before": diff.before, "after": diff.after}
    shown: dict[str, Any] = {name: side if isinstance(side, str) else dict(side) for name, side in sides.items()}
    if diff.header:
        shown |= {"before_header": diff.header, "after_header": diff.header}
    return shown
