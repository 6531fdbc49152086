# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the cases of one test in parallel, one per machine; the test of a case waits for its result.

Most of a case is waiting: for a boot, a kubelet, a fault. An error is raised in the test of its case.
"""

from __future__ import annotations

import queue
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Case = TypeVar("Case")


class Ahead(Generic[Case]):
    """Run ``run(machine, case)`` for all ``cases``, one at a time on each of ``machines``."""

    def __init__(self, run: Callable[[str, Case], None], *, cases: Iterable[Case], machines: Sequence[str]) -> None:
        """Start with the first of ``cases``."""
        self._run = run
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for machine in machines:
            self._free.put(machine)
        self._pool = ThreadPoolExecutor(max_workers=len(machines))
        self._cases: dict[Case, Future[None]] = {case: self._pool.submit(self._one, case) for case in cases}

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_unused: object) -> None:
        """Wait for the running cases; cases that have not started are skipped."""
        self._pool.shutdown(cancel_futures=True)

    def wait_for(self, case: Case) -> None:
        """Wait for the end of ``case``; raises its error."""
        self._cases[case].result()

    def _one(self, case: Case) -> None:
        machine = self._free.get()
        try:
            self._run(machine, case)
        finally:
            self._free.put(machine)
