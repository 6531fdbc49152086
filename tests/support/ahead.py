# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of one test beside each other, each on a machine of its own; the test of a case waits for its end.

Most of a case is waiting: for a boot, a kubelet, a fault. What failed, fails in the test of that very case.
"""

from __future__ import annotations

import queue
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Case = TypeVar("Case")


class Ahead(Generic[Case]):
    """Runs ``run(machine, case)`` for all ``cases``, as many at once as there are ``machines``."""

    def __init__(self, run: Callable[[str, Case], None], *, cases: Iterable[Case], machines: Sequence[str]) -> None:
        """Begin with the first of ``cases``."""
        self._run = run
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for machine in machines:
            self._free.put(machine)
        self._pool = ThreadPoolExecutor(max_workers=len(machines))
        self._cases: dict[Case, Future[None]] = {case: self._pool.submit(self._one, case) for case in cases}

    def __enter__(self) -> Self:
        """Have begun."""
        return self

    def __exit__(self, *_unused: object) -> None:
        """Wait for the cases that run; those that have not begun never do."""
        self._pool.shutdown(cancel_futures=True)

    def wait_for(self, case: Case) -> None:
        """Return when ``case`` has ended well; raises what it raised."""
        self._cases[case].result()

    def _one(self, case: Case) -> None:
        machine = self._free.get()
        try:
            self._run(machine, case)
        finally:
            self._free.put(machine)
