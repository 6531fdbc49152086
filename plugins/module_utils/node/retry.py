# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Retries requests that may succeed later, with pauses that spread the requests of many machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..core.host import uniform
from ..errors import AttestedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.host import Clock, Random
    from ..reasons import Reason

Answer = TypeVar("Answer")
LONGEST_SECONDS = 60.0
_DOUBLINGS = 16
"""After so many doublings every window has reached the longest pause."""


class Backoff:
    """Draws each pause at random from a window that doubles after each failure.

    So machines that failed together do not retry together. The window of a reason starts with `first` seconds and grows
    to ``longest_seconds``; a pause is uniform in it (full jitter). Each reason has its own window, so a new kind of
    failure is retried soon, and two alternating reasons do not reset each other. If the service sent a retry time, no
    request is earlier, and the requests are spread after it; then every window starts again.
    """

    def __init__(
        self,
        *,
        first: Callable[[AttestedError], float | None],
        random: Random,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        """Store the first window of each error (None: a retry never helps) and the source of random numbers."""
        self._first = first
        self._random = random
        self._longest = longest_seconds
        self._failures: dict[Reason, int] = {}

    def pause(self, error: AttestedError) -> float | None:
        """Return how many seconds to wait after ``error``, None if a retry never helps."""
        first = self._first(error)
        if first is None:
            return None
        if minimum := error.retry_after_seconds:
            self._failures.clear()
            return minimum + uniform(self._random, below=max(first, minimum))
        failures = self._failures.get(error.reason, 0)
        self._failures[error.reason] = min(failures + 1, _DOUBLINGS)
        return uniform(self._random, below=min(self._longest, first * 2**failures))


def _ignore(_error: AttestedError, _pause: float) -> None:
    """Ignore a wait."""


def ask_again(
    ask: Callable[[], Answer],
    *,
    pause: Callable[[AttestedError], float | None],
    clock: Clock,
    wait_seconds: float,
    waits: Callable[[AttestedError, float], None] = _ignore,
) -> Answer:
    """Return the result of ``ask``.

    After an error that may pass, call it again until ``wait_seconds`` are over. ``pause`` returns after how many
    seconds a retry makes sense (None: never); ``waits`` is called before each wait. The last error is raised.
    """
    deadline = clock.monotonic() + wait_seconds
    while True:
        try:
            return ask()
        except AttestedError as error:
            seconds = pause(error)
            left = deadline - clock.monotonic()
            if seconds is None or left <= 0:
                raise
            seconds = min(seconds, left)
            waits(error, seconds)
        clock.sleep(seconds)
