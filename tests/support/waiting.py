# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for other processes; no test depends on the duration."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_for(done: Callable[[], bool], *, seconds: float = 900, every: float = 0.2) -> None:
    """Poll with pauses of ``every`` seconds until the result is true; fails after ``seconds``, more than necessary."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"expected it within {seconds:g} s, it did not come"
        time.sleep(every)
