# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking again for what may be had later, at times that many machines do not share."""

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
"""More of them would only be a longer way to say: the longest."""


class Backoff:
    """Draws each pause anew from a window that doubles: machines that failed together do not come back together.

    The window of a reason begins with `first` seconds and ends with ``longest_seconds``; a pause is any moment of it
    (full jitter). Another reason has its own window: a failure of a new kind is looked at soon, and two that take
    turns do not undo each other. A service that said when to come is never asked earlier, nor by all at that moment;
    every window then begins anew.
    """

    def __init__(
        self,
        *,
        first: Callable[[AttestedError], float | None],
        random: Random,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        """Keep the first window of each error (None: it never passes) and where chance comes from."""
        self._first = first
        self._random = random
        self._longest = longest_seconds
        self._failures: dict[Reason, int] = {}

    def pause(self, error: AttestedError) -> float | None:
        """Return how many seconds to wait after ``error``, None where asking again never helps."""
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
    """Tell nobody."""


def ask_again(
    ask: Callable[[], Answer],
    *,
    pause: Callable[[AttestedError], float | None],
    clock: Clock,
    wait_seconds: float,
    waits: Callable[[AttestedError, float], None] = _ignore,
) -> Answer:
    """Return what ``ask`` returns; on an error that passes, ask again until ``wait_seconds`` are over.

    ``pause`` says after how many seconds asking again makes sense (None: never); ``waits`` hears of each wait. The
    last error is raised.
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
