# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One read answers everybody who asked before it began.

A read that has begun may have been answered already when somebody asks, so he is not served by it: he waits for the
next one, with all others who came meanwhile. What is returned is therefore never older than the question.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ApiError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Answer: TypeAlias = Mapping[str, Any] | None


class _Queue:
    """What is going on about one key: whether a read runs, and who waits for the next."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.waiting: Future[Answer] | None = None


class SharedReads:
    """Reads objects by key; may be used by several threads."""

    def __init__(self, read: Callable[[str], Answer]) -> None:
        """Read with ``read``."""
        self._read = read
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}

    def read(self, key: str) -> Answer:
        """Return what a read that began after this call has found; raises what it raised."""
        with self._lock:
            queue = self._queues.setdefault(key, _Queue())
            future, leads = queue.waiting, queue.waiting is None
            if future is None:
                future = queue.waiting = Future()
        if leads:
            try:
                self._lead(key, queue, future)
            finally:
                if not future.done():
                    self._abandon(key, queue, future)
        return future.result()

    def _lead(self, key: str, queue: _Queue, future: Future[Answer]) -> None:
        with queue.turn:
            with self._lock:
                queue.waiting = None  # from here on the read may begin, so who comes later waits for the next
            try:
                future.set_result(self._read(key))
            except Exception as error:  # noqa: BLE001 - it belongs to everybody who waits
                future.set_exception(error)

    def _abandon(self, key: str, queue: _Queue, future: Future[Answer]) -> None:
        """Let nobody wait for a reader that something else than its read has ended, now or later."""
        with self._lock:
            if queue.waiting is future:
                queue.waiting = None
        future.set_exception(
            ApiError(f"expected a read of {key}, the one that led it broke off", reason=Reason.API_UNAVAILABLE)
        )
