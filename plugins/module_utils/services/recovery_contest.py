# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a ticket of the cluster or an admin opens the disk of this boot. The first right key wins."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator


class Contender(Enum):
    """The two ways by which a locked node gets its key."""

    REJOIN = "rejoin"
    RECOVERY = "recovery"


class Contest:
    """One claim for all threads of the process that opens the disk.

    States and the only ways between them::

        OPEN --claim(by)--> HELD(by) --the block ends well--> WON(by)
        HELD(by) --the block raises--> OPEN

    A contender claims once it has a key that opens the header, and before any step that cannot be undone. A contender
    that finds the claim held is refused at once, so it does not wait with a key in memory. Only a reset of the machine
    leaves WON; in OPEN the other contender may try after the first one failed.
    """

    def __init__(self) -> None:
        """Begin open."""
        self._lock = threading.Lock()
        self._holder: Contender | None = None
        self._won = threading.Event()

    @property
    def winner(self) -> Contender | None:
        """The contender that has opened the disk, None while it is closed."""
        return self._holder if self._won.is_set() else None

    def wait(self, seconds: float) -> bool:
        """Wait until the disk is open; return whether it is, so that the other contender stops."""
        return self._won.wait(seconds)

    def require_open(self) -> None:
        """Raise RECOVERY_RACE_LOST if the claim is held or won."""
        with self._lock:
            self._require_free()

    @contextmanager
    def claim(self, by: Contender) -> Iterator[None]:
        """Hold the claim while the block opens the disk; raises RECOVERY_RACE_LOST."""
        with self._lock:
            self._require_free()
            self._holder = by
        try:
            yield
        except BaseException:
            with self._lock:
                self._holder = None
            raise
        self._won.set()

    def _require_free(self) -> None:
        if self._holder is not None:
            done = "has opened it" if self._won.is_set() else "is opening it"
            raise Refusal(f"expected a closed disk, {self._holder.value} {done}", reason=Reason.RECOVERY_RACE_LOST)
