# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole fleet at once: every node asked over its verification service, a few at a time, each until it answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import AttestedError, TransportError
from .client import hear
from .finding import Finding, found, not_found
from .judge import judge, machine_of, proven_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..attestation import VerifiedMachine
    from .judge import Heard, Question

OVER = "service"
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How a fleet is asked: how many nodes at the same time, and how long one that has no time is asked again."""

    parallel: int = 16
    seconds: float = 20.0


async def examine_fleet(
    endpoints: Mapping[str, str], question: Question, *, patience: Patience, told: Callable[[Finding], None]
) -> tuple[Finding, ...]:
    """Return what was found at each node (name to host:port), in their order; ``told`` hears of each at once.

    Raises nothing for a node: whatever happened to it is its finding.
    """
    places = asyncio.Semaphore(patience.parallel)

    async def one(name: str, endpoint: str) -> Finding:
        async with places:
            finding = await examine(name, endpoint, question, seconds=patience.seconds)
        told(finding)
        return finding

    return tuple(await asyncio.gather(*(one(name, endpoint) for name, endpoint in endpoints.items())))


async def examine(name: str, endpoint: str, question: Question, *, seconds: float) -> Finding:
    """Return what was found at one node, asked again for ``seconds`` while time alone may help."""
    try:
        heard = await _hear(endpoint, question, until=question.clock.monotonic() + seconds)
    except AttestedError as error:
        error.message = f"{endpoint}: {error.message}"
        return not_found(name, error, over=OVER)
    return await asyncio.to_thread(_judged, name, heard, question)


async def hear_machines(
    endpoints: Mapping[str, str], question: Question, *, patience: Patience
) -> dict[str, VerifiedMachine | AttestedError]:
    """Return of each node the machine that it proves to be, judged by no profile, or why that is not known."""
    places = asyncio.Semaphore(patience.parallel)

    async def one(name: str, endpoint: str) -> VerifiedMachine | AttestedError:
        try:
            async with places:
                heard = await _hear(endpoint, question, until=question.clock.monotonic() + patience.seconds)
            return await asyncio.to_thread(machine_of, heard, question, node=name)
        except AttestedError as error:
            return error

    answers = await asyncio.gather(*(one(name, endpoint) for name, endpoint in endpoints.items()))
    return dict(zip(endpoints, answers, strict=True))


async def _hear(endpoint: str, question: Question, *, until: float) -> Heard:
    """Return what a node testifies; one that asks for time gets it, each time twice as much.

    A verification is two questions: who comes back as soon as one is allowed never gets to the second.
    """
    patience = 1
    while True:
        try:
            return await hear(endpoint, question)
        except TransportError as error:
            pause = max(_PAUSE_SECONDS, patience * error.retry_after_seconds)
            patience *= 2 if error.retry_after_seconds else 1
            if not error.retryable or question.clock.monotonic() + pause > until:
                raise
        await asyncio.sleep(pause)


def _judged(name: str, heard: Heard, question: Question) -> Finding:
    try:
        return found(judge(heard, question, node=name), over=OVER)
    except AttestedError as error:
        return not_found(name, error, over=OVER, machine=proven_machine(heard, question))
