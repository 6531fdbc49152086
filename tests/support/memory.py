# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looking through the memory of a process, as somebody would who is root on its machine."""

from __future__ import annotations

from pathlib import Path


def memory_holds(pid: int, needle: bytes) -> bool:
    """Say whether ``needle`` is anywhere in the memory that a process can write."""
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
