# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading the configuration again while the service runs: on SIGHUP, all of it or nothing."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Generic, TypeVar

from ..errors import AttestedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .logs import Log

Config = TypeVar("Config")


class Reloader(Generic[Config]):
    """Holds which generation of the configuration is in force; a broken file leaves the old one there."""

    def __init__(self, load: Callable[[], Config], apply: Callable[[Config], None], *, log: Log) -> None:
        """Read by ``load`` and hand to ``apply``, which must change everything or raise before it changes anything."""
        self._load = load
        self._apply = apply
        self._log = log
        self.generation = 1

    def reload(self) -> None:
        """Read again; what is wrong goes into the log."""
        try:
            self._apply(self._load())
        except AttestedError as error:
            self._log.event("reload_refused", generation=self.generation, reason=error.code, detail=error.message)
            return
        self.generation += 1
        self._log.event("reloaded", generation=self.generation)

    def listen(self) -> None:
        """Do it on each SIGHUP to this process."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
