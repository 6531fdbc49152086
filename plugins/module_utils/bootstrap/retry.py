# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking again for what may be had later."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..errors import AttestedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..system import Clock

Answer = TypeVar("Answer")


def _nobody(_error: AttestedError, _pause: float) -> None:
    """Tell nobody."""


def ask_again(
    ask: Callable[[], Answer],
    *,
    pause: Callable[[AttestedError], float | None],
    clock: Clock,
    wait_seconds: float,
    waits: Callable[[AttestedError, float], None] = _nobody,
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
