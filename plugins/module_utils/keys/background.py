# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the key service does beside its calls: each task in a thread of its own, again and again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..errors import AttestedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..serving import Log
    from ..system import Clock

_PAUSE_SECONDS = 5.0


class Background:
    """Tasks by name; each returns or raises when it must begin anew."""

    def __init__(self, tasks: Mapping[str, Callable[[], None]], *, clock: Clock, log: Log) -> None:
        """Run each of ``tasks`` for ever once it is started."""
        self._tasks = tasks
        self._clock = clock
        self._log = log

    def start(self) -> None:
        """Start a thread for each task; none of them keeps the process alive."""
        for name in self._tasks:
            threading.Thread(target=self._repeat, args=(name,), name=name, daemon=True).start()

    def _repeat(self, name: str) -> None:
        """Run it for ever; while the API is away, try again every few seconds, and say so once."""
        told = ""
        while True:
            try:
                self._tasks[name]()
                told = ""
            except AttestedError as error:
                if error.code != told:
                    self._log.event("watch_interrupted", what=name, reason=error.code, detail=error.message)
                told = error.code
                self._clock.sleep(_PAUSE_SECONDS)
