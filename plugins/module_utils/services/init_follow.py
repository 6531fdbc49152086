# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An init followed to its end: asked again when the connection breaks, each thing that the machine says told once.

The machine repeats what its job has said to whoever asks for the same again, so that a new connection goes on here
where the last one ended.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..errors import TransportError
from ..reasons import Reason
from .init_messages import Success

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from ..core.host import Clock
    from .init_messages import Progress

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0
LONGEST_LOOK_SECONDS = 60.0
_LOOK_SECONDS = 5.0

_NOBODY_THERE = frozenset({Reason.CONNECTION_CLOSED, Reason.CONNECTION_TIMEOUT, Reason.PEER_UNREACHABLE})
_HINT = (
    "Look at the machine: systemctl status attested-bootstrapper. It listens only where it may be initialised, and not "
    "once it is a node: then ansible-playbook attested.kubernetes.init -e over_ssh=true. Or run init over ssh alone, "
    "with attested_bootstrapper: false."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a machine may be silent before it is given up, and how long all of it may take."""

    silent_seconds: float
    total_seconds: float = 3600.0


def waits_for_init(machine: str, server: str, *, clock: Clock, wait_seconds: float) -> bool:
    """Say whether the init service of ``machine`` answers while the API server ``server`` does not (both HOST:PORT).

    A machine that was reset, or booted otherwise, looks like that to an admin who has a certificate of its cluster.
    While neither answers, as during a reboot, both are asked again for ``wait_seconds``, a minute at most.
    """
    deadline = clock.monotonic() + min(wait_seconds, LONGEST_LOOK_SECONDS)
    while not _answers(server):
        if _answers(machine):
            return True
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(FIRST_PAUSE_SECONDS)
    return False


def _answers(endpoint: str) -> bool:
    """Whether somebody speaks TLS there, whoever it is: a load balancer takes connections without anybody behind it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _colon, port = endpoint.rpartition(":")
    try:
        plain = socket.create_connection((host.strip("[]"), int(port)), timeout=_LOOK_SECONDS)
        with plain, context.wrap_socket(plain):
            return True
    except (OSError, ValueError):
        return False


class Listener(Protocol):
    """Who is told what happens."""

    def progress(self, one: Progress) -> None:
        """Hear what the machine begins; once for each."""

    def waits(self, error: TransportError, pause_seconds: float) -> None:
        """Hear why and after how many seconds it is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedTask:
    """One task of the machine and its seconds."""

    stage: str
    task: str
    seconds: float


@dataclass(slots=True)
class Story:
    """What the machine has said of its job, over several connections."""

    told: list[Progress] = field(default_factory=list)
    _at: int = 0

    def begin_again(self) -> None:
        """Expect everything from the beginning."""
        self._at = 0

    def hear(self, one: Progress) -> bool:
        """Take what was said; return whether it is new. What differs from before is another job, told anew."""
        known = self._at < len(self.told) and self.told[self._at] == one
        if not known:
            self.told[self._at :] = [one]
        self._at += 1
        return not known

    def tasks(self, *, last_seconds: float) -> tuple[TimedTask, ...]:
        """Return each task with its time: until the next one began, the last one as long as ``last_seconds``."""
        begins = [one.elapsed_seconds for one in self.told]
        times = [after - before for before, after in itertools.pairwise(begins)]
        return tuple(
            TimedTask(stage=one.stage, task=one.task, seconds=max(0.0, seconds))
            for one, seconds in zip(self.told, [*times, last_seconds], strict=False)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an init ended well: what the machine gave, and its tasks."""

    success: Success
    tasks: tuple[TimedTask, ...]


class Pursuit:
    """One init, for as long as it takes."""

    def __init__(
        self,
        patience: Patience,
        *,
        clock: Clock,
        listener: Listener,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Begin now; ``sleep`` waits without holding up anybody else."""
        self._patience = patience
        self._clock = clock
        self._listener = listener
        self._sleep = sleep
        self._story = Story()
        self._begun = self._heard_at = clock.monotonic()
        self._tries = 0

    async def follow(self, ask: Callable[[], AsyncGenerator[Progress | Success, None]]) -> Ended:
        """Return how it ended; ``ask`` begins a conversation with the machine (`client.initiate`).

        A `TransportError` that is ``retryable`` is asked again, later each time, until the machine has said nothing new
        for the patience's time; that and every other error is raised.
        """
        while True:
            try:
                success = await self._conversation(ask)
            except TransportError as error:
                await self._wait_after(error)
            else:
                last = self._clock.monotonic() - self._heard_at
                return Ended(success=success, tasks=self._story.tasks(last_seconds=last))

    async def _conversation(self, ask: Callable[[], AsyncGenerator[Progress | Success, None]]) -> Success:
        self._story.begin_again()
        async with aclosing(ask()) as said:
            async for one in said:
                if isinstance(one, Success):
                    return one
                if self._story.hear(one):
                    self._heard_at, self._tries = self._clock.monotonic(), 0
                    self._listener.progress(one)
        raise TransportError("expected success or failure, got an end", reason=Reason.INIT_BROKEN_OFF, retryable=True)

    async def _wait_after(self, error: TransportError) -> None:
        """Wait before the next try; raises ``error`` where there is none."""
        now = self._clock.monotonic()
        pause = max(pause_seconds(self._tries), error.retry_after_seconds)
        ends = min(self._heard_at + self._patience.silent_seconds, self._begun + self._patience.total_seconds)
        if not error.retryable or now + pause > ends:
            if error.reason in _NOBODY_THERE:
                error.hint = _HINT
            raise error
        self._tries += 1
        self._listener.waits(error, pause)
        await self._sleep(pause)


def pause_seconds(tries: int) -> float:
    """Return how long to wait after ``tries`` waits in vain: 1, 2, 4, 8, and 15 from then on."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(tries, 8), LONGEST_PAUSE_SECONDS)
