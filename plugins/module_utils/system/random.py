# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random bytes, passed in so that tests decide them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

Item = TypeVar("Item")
_BYTES = 8


class Random(Protocol):
    """A source of bytes that nobody can guess."""

    def token(self, size: int) -> bytes:
        """Return ``size`` random bytes."""


class SystemRandom:
    """The kernel's generator."""

    def token(self, size: int) -> bytes:
        """Return ``size`` bytes of getrandom(2)."""
        return secrets.token_bytes(size)


def uniform(random: Random, *, below: float) -> float:
    """Return a number from 0 up to, but not, ``below``, each as likely as any other."""
    return int.from_bytes(random.token(_BYTES), "big") / (1 << 8 * _BYTES) * below


def shuffled(random: Random, items: Iterable[Item]) -> list[Item]:
    """Return ``items`` in an order of which each is as likely as any other."""
    return [item for _drawn, item in sorted(((random.token(_BYTES), item) for item in items), key=lambda pair: pair[0])]
