# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chance that can be repeated."""

from __future__ import annotations

import random


class SeededRandom:
    """The same bytes for the same seed; for tests of what is drawn, never for a key."""

    def __init__(self, seed: int) -> None:
        """Begin at ``seed``."""
        self._source = random.Random(seed)

    def token(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        return self._source.randbytes(size)
