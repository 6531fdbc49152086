# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The master secret to every locked node behind one address, and the one way to learn that it was wrong.

A node of Constellation answers as soon as it has the secret, and tries its disk afterwards. One that could not open it
says nothing to us: it waits a minute, reboots, and asks again. So whoever asked is remembered by its attestation key,
and who asks twice is told to the person instead of being given the same secret for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Refusal, TransportError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..system import Clock
    from .node import SeenNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """``pause_seconds`` between two attempts; ``watch_seconds``: how long after the last node nobody may ask again."""

    pause_seconds: float = 5.0
    watch_seconds: float = 180.0


async def recover_nodes(
    push: Callable[[frozenset[bytes]], Awaitable[SeenNode]],
    *,
    patience: Patience,
    clock: Clock,
    sleep: Callable[[float], Awaitable[None]],
    told: Callable[[SeenNode], None],
) -> tuple[SeenNode, ...]:
    """Return the nodes that were given the secret by ``push``, which is handed the keys of those that have it.

    Ends when nobody has asked for ``watch_seconds``. Raises RESCUE_ASKS_AGAIN, what ``push`` refuses, and its
    PEER_UNREACHABLE where nobody asked at all.
    """
    given: dict[bytes, SeenNode] = {}
    until = clock.monotonic() + patience.watch_seconds
    while True:
        try:
            node = await push(frozenset(given))
        except TransportError as error:
            if not error.retryable or not given:
                raise
            if clock.monotonic() >= until:
                return tuple(given.values())
        else:
            given[node.ak_name] = node
            told(node)
            until = clock.monotonic() + patience.watch_seconds
        await sleep(patience.pause_seconds)


def require_new(node: SeenNode, given: frozenset[bytes]) -> None:
    """Raise RESCUE_ASKS_AGAIN for a node that has the secret already."""
    if node.ak_name in given:
        raise Refusal(
            f"expected a node that was not given the secret yet, got the one with the key {node.ak_name.hex()} again",
            reason=Reason.RESCUE_ASKS_AGAIN,
        )
