# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk that a site names for a machine's state, read and left as it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import AttestedError
from ..luks import STATE_DISK
from ..statedisk import NAME, LinuxDevice, StatePaths, require_by_id
from .facts import DiskView

if TYPE_CHECKING:
    from ..statedisk import DiskFacts
    from ..system import Follower, Runner

_VERSION = re.compile(r"cryptsetup (\d+)\.(\d+)")
_OUR_MAPPING = (f"{NAME}_dif",)


def read_disk_view(device: str, *, runner: Runner, follower: Follower) -> DiskView:
    """Return what is at ``device`` (below /dev/disk/by-id); it raises nothing of a disk."""
    version = _version(runner)
    try:
        # which id is the machine's nobody knows here, so that no mapping counts as that of its disk
        facts = LinuxDevice(require_by_id(device), paths=StatePaths(), runner=runner, follower=follower).facts("")
    except AttestedError as error:
        return DiskView(problem=f"{error.message} ({error.code})", cryptsetup=version)
    if facts is None:
        return DiskView(present=False, cryptsetup=version)
    is_open = facts.users == _OUR_MAPPING
    return DiskView(
        size_bytes=facts.size_bytes,
        users=() if is_open else facts.users,
        ours=is_open or _carries_our_label(facts),
        contents="" if facts.empty else facts.contents(),
        cryptsetup=version,
    )


def _carries_our_label(facts: DiskFacts) -> bool:
    try:
        header = facts.header()
    except AttestedError:
        return False
    return header is not None and header.label == STATE_DISK.label


def _version(runner: Runner) -> tuple[int, ...] | None:
    try:
        said = runner.run(["cryptsetup", "--version"], check=False).stdout.decode("utf-8", "replace")
    except AttestedError:
        return None
    found = _VERSION.match(said)
    return tuple(map(int, found.groups())) if found else None
