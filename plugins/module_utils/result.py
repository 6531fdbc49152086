# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a module's work, for Ansible and for programs on a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """The rendered plan: ``before`` and ``after`` are texts or mappings of plain values, never secrets."""

    before: str | Mapping[str, Any]
    after: str | Mapping[str, Any]
    header: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of ``run(params, check_mode)``.

    ``values`` become the keys of the module's result: plain values, handles, digests and paths, never secrets.
    In check mode ``changed`` and ``diff`` describe what would change.
    """

    changed: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    diff: Diff | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One completed step: its name, its title for display, and its duration."""

    name: str
    title: str
    seconds: float

    def as_result(self) -> dict[str, object]:
        """Return plain values for a module's result."""
        return {"name": self.name, "title": self.title, "seconds": round(self.seconds, 2)}
