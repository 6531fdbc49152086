# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Search for needles in all data and output of one machine: files, argv, environments, the journal.

A standalone program with only the standard library: a test runs it inside a node (`python3 -c`). It reads JSON from
standard input, {"needles": {name: [hex, ...]}, "since": seconds, "skip": [directories]}, and prints a JSON list of
{"channel", "place", "needle"}. Files whose inode is older than ``since`` were complete before the first secret existed.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE_LIMIT = 256 << 20


def matches(data: bytes, needles: dict[str, list[bytes]]) -> Iterator[str]:
    """Return the names of the needles that ``data`` contains in any encoding."""
    return (name for name, spellings in needles.items() if any(one in data for one in spellings))


def files(root: str, *, skip: tuple[str, ...], since: float) -> Iterator[tuple[str, bytes]]:
    """Return path and content of each regular file below ``root`` that changed after ``since``."""
    for folder, names, entries in os.walk(root):
        here = Path(folder)
        names[:] = [name for name in names if not str(here / name).startswith(skip)]
        for path in (here / entry for entry in entries):
            try:
                state = path.lstat()
                if stat.S_ISREG(state.st_mode) and state.st_ctime >= since:
                    with path.open("rb") as file:
                        yield str(path), file.read(SIZE_LIMIT)
            except OSError:
                continue  # removed or unreadable


def processes() -> Iterator[tuple[str, str, bytes]]:
    """Return channel, process and bytes of every argv and environment."""
    for directory in Path("/proc").glob("[0-9]*"):
        for channel, name in (("argv", "cmdline"), ("environment", "environ")):
            try:
                yield channel, directory.name, (directory / name).read_bytes()
            except OSError:
                continue  # the process has ended


def journal() -> bytes:
    """Return the whole journal with all fields; empty without a journal."""
    argv = ["journalctl", "--all", "--output=json", "--no-pager"]
    try:
        return subprocess.run(argv, capture_output=True, check=False).stdout
    except FileNotFoundError:
        return b""


def look(asked: dict[str, Any]) -> list[dict[str, str]]:
    """Return all places of needles."""
    needles = {name: [bytes.fromhex(one) for one in spellings] for name, spellings in asked["needles"].items()}
    skip = ("/proc", "/sys", *asked["skip"])
    found = files("/", skip=skip, since=asked["since"])
    seen = chain((("file", *one) for one in found), processes(), (("journal", "journal", journal()),))
    return [
        {"channel": channel, "place": place, "needle": name}
        for channel, place, data in seen
        for name in matches(data, needles)
    ]


if __name__ == "__main__":
    json.dump(look(json.load(sys.stdin)), sys.stdout)
