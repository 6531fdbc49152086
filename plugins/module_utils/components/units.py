# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units of one phase: enabled, running, and running with the files that are there now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..system import Runner

_SECONDS = 300
_RUNS = frozenset({"active", "activating", "reloading"})
_STARTS_AT_BOOT = frozenset({"enabled", "enabled-runtime", "static", "indirect", "generated", "alias"})
_PROPERTIES = "Id,ActiveState,UnitFileState,NeedDaemonReload"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """A unit as systemd sees it; ``stale``: its file was changed since systemd read it."""

    runs: bool
    starts_at_boot: bool
    stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlan:
    """What is to do, by names of units; ``restart`` is all or nothing, since they belong together."""

    enable: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The units that something is to do with."""
        return tuple(sorted({*self.enable, *self.start, *self.restart}))


def plan_units(wanted: Sequence[str], found: Mapping[str, UnitState], *, written: bool) -> UnitPlan:
    """Return what makes ``wanted`` run at this moment and at boot; ``written``: their files are new. Pure."""
    states = {name: found.get(name, UnitState(runs=False, starts_at_boot=False)) for name in wanted}
    again = written or any(state.stale for state in states.values())
    return UnitPlan(
        enable=tuple(name for name, state in states.items() if not state.starts_at_boot),
        start=() if again else tuple(name for name, state in states.items() if not state.runs),
        restart=tuple(wanted) if again else (),
    )


class Units:
    """systemd's units."""

    def __init__(self, runner: Runner) -> None:
        """Keep how to run systemctl."""
        self._runner = runner

    def read(self, names: Sequence[str]) -> dict[str, UnitState]:
        """Return the state of each unit; raises COMMAND_FAILED."""
        said = self._systemctl("show", f"--property={_PROPERTIES}", *names)
        rows = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in said.split("\n\n")]
        return {row["Id"]: _state(row) for row in rows if "Id" in row}

    def apply(self, plan: UnitPlan) -> None:
        """Do what ``plan`` says; raises COMMAND_FAILED with what systemctl said."""
        if plan.restart:
            self._systemctl("daemon-reload")
        for verb, names in (("enable", plan.enable), ("start", plan.start), ("restart", plan.restart)):
            if names:
                self._systemctl(verb, *(("--quiet",) if verb == "enable" else ()), *names)

    def _systemctl(self, *words: str) -> str:
        return self._runner.run(["systemctl", *words], timeout_seconds=_SECONDS).stdout.decode("utf-8", "replace")


def _state(row: Mapping[str, str]) -> UnitState:
    return UnitState(
        runs=row.get("ActiveState") in _RUNS,
        starts_at_boot=row.get("UnitFileState") in _STARTS_AT_BOOT,
        stale=row.get("NeedDaemonReload") == "yes",
    )
