# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One lock for each name: who works on one thing waits for nobody who works on another."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class _Lock:
    """A lock, and how many hold it or wait for it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class NamedLocks:
    """Locks by name. One is there only while somebody holds it or waits for it, so there are no more than calls."""

    def __init__(self) -> None:
        """Begin with none."""
        self._guard = threading.Lock()
        self._locks: dict[str, _Lock] = {}

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold the lock of ``name``, once nobody else does."""
        with self._guard:
            mine = self._locks.setdefault(name, _Lock())
            mine.users += 1
        try:
            with mine.lock:
                yield
        finally:
            with self._guard:
                mine.users -= 1
                if not mine.users:
                    del self._locks[name]
