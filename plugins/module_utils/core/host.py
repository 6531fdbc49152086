# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clock and random numbers, passed as arguments so that tests can set them; and the installed release."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class Clock(Protocol):
    """The time functions that the code needs."""

    def now(self) -> datetime:
        """Return the time in UTC, for dates in certificates and records."""

    def monotonic(self) -> float:
        """Return seconds that never decrease, for deadlines."""

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds``."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the seconds since a fixed point of this boot."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds``."""
        time.sleep(seconds)


def span(seconds: float) -> str:
    """Return ``seconds`` for display, in the largest unit with a value of at least two: ``364 d``, ``90 min``."""
    for name, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {name}"
    return f"{seconds:.0f} s"


# Random bytes, passed as an argument so that tests can set them.

Item = TypeVar("Item")
_BYTES = 8


class Random(Protocol):
    """A source of unpredictable bytes."""

    def token(self, size: int) -> bytes:
        """Return ``size`` random bytes."""


class SystemRandom:
    """The kernel's generator."""

    def token(self, size: int) -> bytes:
        """Return ``size`` bytes of getrandom(2)."""
        return secrets.token_bytes(size)


def uniform(random: Random, *, below: float) -> float:
    """Return a uniformly distributed number from 0 (included) to ``below`` (excluded)."""
    return int.from_bytes(random.token(_BYTES), "big") / (1 << 8 * _BYTES) * below


def shuffled(random: Random, items: Iterable[Item]) -> list[Item]:
    """Return ``items`` in random order, all orders equally likely."""
    return [item for _drawn, item in sorted(((random.token(_BYTES), item) for item in items), key=lambda pair: pair[0])]


# The installed release, for ``--version`` and the health of a service.

_DISTRIBUTION = "attested-kubernetes"


def release() -> str:
    """Return the version of the installed wheel, or ``source tree`` in a checkout."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "source tree"
