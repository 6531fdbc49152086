# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random bytes, passed in so that tests decide them."""

from __future__ import annotations

import secrets
from typing import Protocol


class Random(Protocol):
    """A source of bytes that nobody can guess."""

    def token(self, size: int) -> bytes:
        """Return ``size`` random bytes."""


class SystemRandom:
    """The kernel's generator."""

    def token(self, size: int) -> bytes:
        """Return ``size`` bytes of getrandom(2)."""
        return secrets.token_bytes(size)
