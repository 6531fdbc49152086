# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time, passed in so that tests decide it."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class Clock(Protocol):
    """What a part needs to know of time."""

    def now(self) -> datetime:
        """Wall clock, UTC, for dates in certificates and records."""

    def monotonic(self) -> float:
        """Seconds that never go back, for deadlines."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Wall clock, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some fixed point of this boot."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds``."""
        time.sleep(seconds)


def span(seconds: float) -> str:
    """Return ``seconds`` for a person, in the largest unit of which there are at least two: ``364 d``, ``90 min``."""
    for name, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {name}"
    return f"{seconds:.0f} s"


# Random bytes, passed in so that tests decide them.

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


# Which release this is, for ``--version`` and the health of a service.

_DISTRIBUTION = "attested-kubernetes"


def release() -> str:
    """Return the version of the installed wheel, or ``source tree`` where it is run from a checkout."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "source tree"
