# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One start of the bootstrapper: look at the machine, go the way that is open to it, end (docs/adr/0016).

::

    look --KUBELET--------------> make sure that the kubelet runs ---------> over
    look --JOIN, REJOIN---------> the node's own run ----------------------> over
    look --INIT, KEYS-----------> door open until an admin's init ends well -> over
    look --RACE-----------------> door open (where it may) and join client,
                                  whichever takes the lock goes on --------> over
    look --REJOIN, with a disk--> the same, and an admin's recovery beside it -> over
    over: who has joined as a control plane installs its services first, if it has not yet

Whatever fails is kept in the node's journal and raised; systemd starts it again, and it looks anew.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from ..errors import AttestedError
from ..reasons import Reason
from .boot_action import BootAction, choose_action, read_membership
from .join_claim import JoinContender, StoppableClock
from .recovery import Rejoin, rejoin_or_recover

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from ..keyservice.key_bundle import KeyBundle
    from ..services.init_handler import Founder
    from ..services.init_job import Teller
    from ..services.init_messages import InitOrder, Success
    from .claim import ClaimFile, Race
    from .order import Parts
    from .recovery import Recovery, StructuredLog
    from .services import Services

LINGER_SECONDS = 30.0
"""After an init that ended well the door stays open: an admin whose connection broke finds the same job."""

AGAIN_SECONDS = 30.0
"""A join client that has failed for good asks again after this time, while the door is open beside it."""

PERSON_NEEDED = frozenset(
    {
        Reason.CLAIM_MALFORMED,
        Reason.CONFIG_INVALID,
        Reason.NODELOCK_FOREIGN,
        Reason.NODELOCK_OTHER_CLUSTER,
        Reason.NODELOCK_UNCLAIMED,
        Reason.NODE_CONFIG_MALFORMED,
        Reason.NODE_JOURNAL_MALFORMED,
        Reason.STATE_DISK_COUNTER_LOST,
        Reason.STATE_DISK_FOREIGN,
        Reason.STATE_DISK_HEADER_CHANGED,
        Reason.STATE_DISK_HIDES_DATA,
        Reason.STATE_DISK_OCCUPIED,
        Reason.STATE_DISK_OPTION,
        Reason.STATE_DISK_RECORD,
        Reason.STATE_DISK_ROLLED_BACK,
        Reason.STATE_DISK_TOO_LATE,
        Reason.STATE_DISK_TOO_SMALL,
    }
)
"""What no later start of the same machine would find better."""

_WITH_LISTENER = frozenset({BootAction.RACE, BootAction.INIT, BootAction.KEYS})
_WITH_JOIN = frozenset({BootAction.RACE, BootAction.JOIN, BootAction.REJOIN})


class InitListener(Protocol):
    """Where an admin's init comes in: the socket of the desk, and the service on the network beside it."""

    def opened(self, founder: Founder) -> AbstractAsyncContextManager[None]:
        """Let init requests come to ``founder`` as long as the context lasts; raises FILE_UNUSABLE, COMMAND_FAILED."""


def log_step(log: StructuredLog, name: str, seconds: float) -> None:
    """Say that a step has ended well, and how long it took: what a slow boot is looked through for."""
    log.event("step", name=name, seconds=round(seconds, 3))


class Bootstrapper:
    """Makes a node of this machine, once; may be stopped at any time and started again."""

    def __init__(
        self,
        parts: Parts,
        *,
        race: Race,
        claims: ClaimFile,
        founder: Callable[[Callable[[], None]], Founder],
        listener: InitListener,
        serve_init: bool,
        log: StructuredLog,
        services: Services | None = None,
        recovery: Recovery | None = None,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        """Run the node of ``parts``; ``serve_init``: a machine that nobody has taken may be initialised.

        ``founder`` makes the founder out of what ends the join client once init has taken the lock. ``services`` are
        those of a control plane. ``recovery`` is the other way of a node whose state lies on a disk.
        """
        self._parts = parts
        self._claims = claims
        self._founder = _Announcing(founder(self.stop_asking))
        self._listener = listener
        self._serve_init = serve_init
        self._log = log
        self._services = services
        self._recovery = recovery
        self._linger_seconds = linger_seconds
        self._contender = JoinContender(parts, race)
        self._settled = JoinContender(parts, None)
        self._pause = StoppableClock(parts.machine.clock)

    def next_action(self) -> BootAction:
        """Return the way that is open; raises NODELOCK_…, CLAIM_MALFORMED, NODE_JOURNAL_MALFORMED."""
        parts = self._parts
        return choose_action(
            parts.lock.read(),
            cluster_id=parts.config.cluster_id,
            membership=read_membership(parts.machine, parts.journal),
            claim=self._claims.load(),
            has_disk=parts.disk is not None,
        )

    def stop_asking(self) -> None:
        """End the join client, from any thread; a lock that was taken stays."""
        for one in (self._contender, self._settled, self._pause):
            one.stop()

    def ask_now(self) -> None:
        """Let the join client ask now instead of after its pause, from any thread."""
        for one in (self._contender, self._settled, self._pause):
            one.wake()

    async def run(self, action: BootAction) -> None:
        """Go ``action`` until this machine is a node and serves as it should; raises what the last step raised."""
        self._log.event("course", course=action.name, text=action.value)
        await self._become_node(action)
        await asyncio.to_thread(self._serve)

    async def _become_node(self, action: BootAction) -> None:
        if action is BootAction.KUBELET:
            await asyncio.to_thread(self._resume_kubelet)
            return
        if action is BootAction.REJOIN and self._recovery is not None:
            rejoin = Rejoin(run=lambda: self._join(action), stop=self._stop_joining, resume=self._resume)
            await rejoin_or_recover(rejoin, self._recovery, log=self._log)
            return
        if action not in _WITH_LISTENER or (action is BootAction.RACE and not self._serve_init):
            await asyncio.to_thread(self._join, action)
            return
        async with self._listener.opened(self._founder):
            await self._run_contenders(action)

    def _resume_kubelet(self) -> None:
        """Start it with the certificate that it has; a start that was killed after the lock may have left a key.

        What kept this boot from going on is over, and forgotten.
        """
        parts = self._parts
        parts.tickets.discard()
        parts.machine.kubelet.start()
        state = parts.journal.load()
        if state.reason is not None:
            parts.journal.enter(state.phase)

    def _serve(self) -> None:
        if self._services is None:
            return
        if self._parts.disk is not None:
            self._services.resume()
        if self._services.missing():
            self._services.install()
            self._log.event("serves", text="This control plane admits machines")

    async def _run_contenders(self, action: BootAction) -> None:
        """Return when init has ended well, or the join client beside it."""
        ways = [asyncio.create_task(self._wait_for_init())]
        if action in _WITH_JOIN:
            ways.append(asyncio.create_task(asyncio.to_thread(self._join_until_stopped)))
        try:
            done, _others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            won = [way.result() for way in done]
            if not any(won):  # the join client gave way to init
                await ways[0]
        finally:
            ways[0].cancel()
            self.stop_asking()
            await asyncio.gather(*ways, return_exceptions=True)  # who gives way removes its traces first

    async def _wait_for_init(self) -> bool:
        await self._founder.wait()
        self._log.event("initialised", text="This machine is the first control plane of its cluster")
        await asyncio.sleep(self._linger_seconds)
        return True

    def _join(self, action: BootAction) -> None:
        outcome = (self._contender if action is BootAction.RACE else self._settled).run()
        for step in outcome.steps:
            log_step(self._log, step.name, step.seconds)
        self._log.event("joined", steps=", ".join(step.name for step in outcome.steps))

    def _stop_joining(self) -> None:
        self._settled.stop()

    def _resume(self) -> None:
        """Go on as a node whose disk is open and which is locked, with a contender that nobody has stopped.

        A control plane needs its own kubelet before anybody can give it another certificate: it has that renewed later.
        """
        if self._services is not None and self.next_action() is BootAction.KUBELET:
            self._resume_kubelet()
            return
        self._settled = JoinContender(self._parts, None)
        self._join(BootAction.JOIN)

    def _join_until_stopped(self) -> bool:
        """Return whether this machine has joined; not so where init was faster, or the unit is stopped."""
        while True:
            try:
                self._join(BootAction.RACE)
            except AttestedError as error:
                if error.reason is Reason.RACE_LOST:
                    return False
                self._log.event("join_failed", reason=error.code, message=error.message)
            else:
                return True
            try:
                self._pause.sleep(AGAIN_SECONDS)
            except AttestedError:
                return False


class _Announcing:
    """A founder of whom others hear when it has founded."""

    def __init__(self, founder: Founder) -> None:
        self._founder = founder
        self._founded: Future[None] = Future()

    def found(
        self, order: InitOrder, bundle: KeyBundle, *, digest: str, judged: Mapping[int, bytes], teller: Teller
    ) -> Success:
        success = self._founder.found(order, bundle, digest=digest, judged=judged, teller=teller)
        if not self._founded.done():
            self._founded.set_result(None)
        return success

    async def wait(self) -> None:
        """Return when it has founded."""
        await asyncio.shield(asyncio.wrap_future(self._founded))
