# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `node_files`: write users, files and units of one phase; each file is replaced atomically."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import write_atomic
from ..errors import SystemFault
from ..reasons import Reason
from ..result import Diff, Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.command import Runner


# The units of one phase: enabled, running, and restarted after a change of their files.

_SECONDS = 300
_RUNS = frozenset({"active", "activating", "reloading"})
_STARTS_AT_BOOT = frozenset({"enabled", "enabled-runtime", "static", "indirect", "generated", "alias"})
_PROPERTIES = "Id,ActiveState,UnitFileState,NeedDaemonReload"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """The state of a unit; ``stale``: its file changed after systemd loaded it."""

    runs: bool
    starts_at_boot: bool
    stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlan:
    """The units to enable, start and restart; ``restart`` has all units or none."""

    enable: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All units of the plan, sorted."""
        return tuple(sorted({*self.enable, *self.start, *self.restart}))


def plan_units(wanted: Sequence[str], found: Mapping[str, UnitState], *, written: bool) -> UnitPlan:
    """Return the plan to run ``wanted`` now and at boot; ``written``: files changed. Pure."""
    states = {name: found.get(name, UnitState(runs=False, starts_at_boot=False)) for name in wanted}
    again = written or any(state.stale for state in states.values())
    return UnitPlan(
        enable=tuple(name for name, state in states.items() if not state.starts_at_boot),
        start=() if again else tuple(name for name, state in states.items() if not state.runs),
        restart=tuple(wanted) if again else (),
    )


class Units:
    """The units of systemd."""

    def __init__(self, runner: Runner) -> None:
        """Set the runner of systemctl."""
        self._runner = runner

    def read(self, names: Sequence[str]) -> dict[str, UnitState]:
        """Return the state of each unit; raises COMMAND_FAILED."""
        said = self._systemctl("show", f"--property={_PROPERTIES}", *names)
        rows = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in said.split("\n\n")]
        return {row["Id"]: _state(row) for row in rows if "Id" in row}

    def apply(self, plan: UnitPlan) -> None:
        """Apply ``plan``; raises COMMAND_FAILED with the output of systemctl."""
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


# The users of services: system users without password, shell and home directory (sysusers.d(5)).

_NOT_FOUND = 2  # getent(1)


class Users:
    """The users of the machine, from all sources of NSS."""

    def __init__(self, runner: Runner) -> None:
        """Set the runner of commands."""
        self._runner = runner

    def absent(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the ``names`` that are not users of the machine; raises COMMAND_MISSING."""
        return tuple(
            name for name in names if self._runner.run(["getent", "passwd", name], check=False).returncode == _NOT_FOUND
        )

    def make(self, names: Sequence[str]) -> None:
        """Create users, each with a group of its name; raises COMMAND_FAILED."""
        if names:
            lines = (f"u {name} - - /nonexistent /usr/sbin/nologin" for name in names)
            self._runner.run(["systemd-sysusers", "--inline", *lines])


_SHOWN_LIMIT = 64 << 10
_PERMISSIONS = 0o777


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFile:
    """A desired file: absolute ``path``, ``content``, permission bits. The diff hides a ``secret`` content."""

    path: str
    content: bytes
    mode: int
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """An existing file."""

    content: bytes
    mode: int


def plan_files(wanted: Sequence[WantedFile], found: Mapping[str, FoundFile]) -> tuple[WantedFile, ...]:
    """Return the ``wanted`` files that are absent or differ in content or mode. Pure."""
    return tuple(file for file in wanted if found.get(file.path) != FoundFile(content=file.content, mode=file.mode))


def write_files(
    params: Mapping[str, Any], check_mode: bool, *, root: Path = Path("/"), runner: Runner | None = None
) -> Result:
    """Write the files of ``params['files']`` and their directories; raises FILE_UNUSABLE, COMMAND_FAILED.

    ``params['users']`` are created before. ``params['units']`` are enabled and started afterwards; if a file changed,
    all of them are restarted.
    """
    runner = runner or SystemRunner()
    users = _make_users(params.get("users") or (), Users(runner), check_mode=check_mode)
    wanted = [_wanted(row) for row in params["files"]]
    found = {file.path: state for file in wanted if (state := _found(root / file.path.lstrip("/"))) is not None}
    stale = plan_files(wanted, found)
    if not check_mode:
        for file in stale:
            _write(root / file.path.lstrip("/"), file)
    plan = _tend_units(params.get("units") or (), Units(runner), written=bool(stale), check_mode=check_mode)
    return Result(
        changed=bool(users or stale or plan.names),
        values={"users": list(users), "written": [file.path for file in stale], "units": list(plan.names)},
        diff=Diff(
            before="".join(_shown(file, found[file.path]) for file in stale if file.path in found),
            after="".join(_shown(file, FoundFile(content=file.content, mode=file.mode)) for file in stale),
        ),
    )


def _make_users(names: Sequence[str], users: Users, *, check_mode: bool) -> tuple[str, ...]:
    """Create missing users; return their names."""
    absent = users.absent(names)
    if not check_mode:
        users.make(absent)
    return absent


def _tend_units(names: Sequence[str], units: Units, *, written: bool, check_mode: bool) -> UnitPlan:
    """Enable and run the units; return the plan, which check mode does not apply."""
    plan = plan_units(names, units.read(names) if names else {}, written=written)
    if not check_mode:
        units.apply(plan)
    return plan


def _write(target: Path, file: WantedFile) -> None:
    try:
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise SystemFault(
            f"cannot make the directory of {target}: {error.strerror}", reason=Reason.FILE_UNUSABLE
        ) from error
    write_atomic(target, file.content, mode=file.mode)


def _wanted(row: Mapping[str, Any]) -> WantedFile:
    try:
        mode = int(str(row["mode"]), 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= _PERMISSIONS or not str(row["path"]).startswith("/"):
        raise SystemFault(
            f"expected an absolute path and an octal mode such as '0644', got {row['path']!r} and {row['mode']!r}",
            reason=Reason.FILE_UNUSABLE,
        )
    content = str(row["content"]).encode()
    return WantedFile(path=str(row["path"]), content=content, mode=mode, secret=bool(row.get("secret")))


def _found(path: Path) -> FoundFile | None:
    if path.is_symlink() or not path.is_file():
        return None
    return FoundFile(content=path.read_bytes(), mode=stat.S_IMODE(path.stat().st_mode))


def _shown(wanted: WantedFile, file: FoundFile) -> str:
    text = "(not shown)" if wanted.secret else file.content[:_SHOWN_LIMIT].decode("utf-8", "replace")
    return f"{wanted.path} ({file.mode:04o})\n{text}\n"
