# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `node_files`: the small files of one phase in one go, each whole or not at all, and what runs with them."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SystemFault
from ..reasons import Reason
from ..result import Diff, Result
from ..system import SystemRunner, write_atomic
from .units import Units, plan_units
from .users import Users

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..system import Runner
    from .units import UnitPlan

_SHOWN_LIMIT = 64 << 10
_PERMISSIONS = 0o777


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFile:
    """A file as it has to be: absolute ``path``, ``content``, permission bits."""

    path: str
    content: bytes
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file as it is."""

    content: bytes
    mode: int


def plan_files(wanted: Sequence[WantedFile], found: Mapping[str, FoundFile]) -> tuple[WantedFile, ...]:
    """Return those of ``wanted`` that are absent or differ in content or mode; pure."""
    return tuple(file for file in wanted if found.get(file.path) != FoundFile(content=file.content, mode=file.mode))


def write_files(
    params: Mapping[str, Any], check_mode: bool, *, root: Path = Path("/"), runner: Runner | None = None
) -> Result:
    """Make the files of ``params['files']`` what they say, with their directories; owner is who runs this.

    ``params['users']`` are made before, as the units run as them. ``params['units']`` are enabled and run afterwards,
    all of them anew where a file was written.
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
            before="".join(_shown(path, found[path]) for path in (file.path for file in stale) if path in found),
            after="".join(_shown(file.path, FoundFile(content=file.content, mode=file.mode)) for file in stale),
        ),
    )


def _make_users(names: Sequence[str], users: Users, *, check_mode: bool) -> tuple[str, ...]:
    """Make those that are missing; return which they were."""
    absent = users.absent(names)
    if not check_mode:
        users.make(absent)
    return absent


def _tend_units(names: Sequence[str], units: Units, *, written: bool, check_mode: bool) -> UnitPlan:
    """Make the units run; return what was (in check mode: would be) done."""
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
    return WantedFile(path=str(row["path"]), content=str(row["content"]).encode(), mode=mode)


def _found(path: Path) -> FoundFile | None:
    if path.is_symlink() or not path.is_file():
        return None
    return FoundFile(content=path.read_bytes(), mode=stat.S_IMODE(path.stat().st_mode))


def _shown(path: str, file: FoundFile) -> str:
    text = file.content[:_SHOWN_LIMIT].decode("utf-8", "replace")
    return f"{path} ({file.mode:04o})\n{text}\n"
