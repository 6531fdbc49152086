# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Search the memory of a process, as root of its machine can."""

from __future__ import annotations

from pathlib import Path


def memory_holds(pid: int, needle: bytes) -> bool:
    """Return whether the writable memory of a process contains ``needle``."""
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
        span, mode, *_rest = line.split()
        if not mode.startswith("rw"):
            continue
        begin, end = (int(part, 16) for part in span.split("-"))
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(begin)
            if needle in (memory.read(end - begin) or b""):
                return True
    return False
