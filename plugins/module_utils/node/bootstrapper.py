# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One start of the bootstrapper: read the state of the machine, perform the one possible action, end (docs/adr/0016).

::

    KUBELET --------------> make sure that the kubelet runs ------------------------> end
    JOIN, REJOIN ---------> run the steps of the node -------------------------------> end
    INIT, KEYS -----------> init listener until an admin's init has succeeded -------> end
    RACE -----------------> init listener (if configured) and join client together;
                            the first that takes the lock continues ----------------> end
    REJOIN, with a disk --> the steps of the node, and an admin's recovery meanwhile -> end
    end: a machine that has joined as a control plane first installs its services, if they are missing

A failure is recorded in the node's journal and raised. systemd starts the program again, which reads the state again.
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
    from ..services.init_job import JobReporter
    from ..services.init_messages import InitOrder, Success
    from .claim import ClaimFile, Race
    from .order import Parts
    from .recovery import Recovery, StructuredLog
    from .services import Services

LINGER_SECONDS = 30.0
"""How long the listener runs after a successful init: an admin whose connection broke can fetch the job's result."""

RETRY_SECONDS = 30.0
"""How long the join client waits after a permanent failure, while the init listener runs."""

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
"""Reasons that another start of the program cannot repair."""

_WITH_LISTENER = frozenset({BootAction.RACE, BootAction.INIT, BootAction.KEYS})
_WITH_JOIN = frozenset({BootAction.RACE, BootAction.JOIN, BootAction.REJOIN})


class InitListener(Protocol):
    """Receives an admin's init: the socket of the desk, and the network service that calls it."""

    def opened(self, founder: Founder) -> AbstractAsyncContextManager[None]:
        """Pass init requests to ``founder`` as long as the context lasts.

        Raises FILE_UNUSABLE, COMMAND_FAILED.
        """


def log_step(log: StructuredLog, name: str, seconds: float) -> None:
    """Log that a step has succeeded, and its duration, so that a slow boot can be explained."""
    log.event("step", name=name, seconds=round(seconds, 3))


class Bootstrapper:
    """Makes a node of this machine once; it can be stopped at any time and started again."""

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
        """Run the node of ``parts``; ``serve_init``: an unclaimed machine may be initialised.

        ``founder`` returns the founder; its argument stops the join client once init has taken the lock. ``services``
        are the services of a control plane. ``recovery`` lets an admin open the state disk of a rebooted node.
        """
        self._parts = parts
        self._claims = claims
        self._founder = _AwaitableFounder(founder(self.stop_asking))
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
        """Return the action for the machine's present state.

        Raises NODELOCK_…, CLAIM_MALFORMED, NODE_JOURNAL_MALFORMED.
        """
        parts = self._parts
        return choose_action(
            parts.lock.read(),
            cluster_id=parts.config.cluster_id,
            membership=read_membership(parts.machine, parts.journal),
            claim=self._claims.load(),
            has_disk=parts.disk is not None,
        )

    def stop_asking(self) -> None:
        """Stop the join client, from any thread; a lock that was taken stays taken."""
        for one in (self._contender, self._settled, self._pause):
            one.stop()

    def ask_now(self) -> None:
        """Let the join client ask immediately instead of after its pause, from any thread."""
        for one in (self._contender, self._settled, self._pause):
            one.wake()

    async def run(self, action: BootAction) -> None:
        """Perform ``action`` until this machine is a node and its services are installed; raises what failed."""
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
        """Start the kubelet with its present certificate.

        An earlier start that was killed after the lock may have left a key and tickets, which are removed. The journal
        drops the failure that it holds.
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
        """Return when either init or the join client has succeeded."""
        contenders = [asyncio.create_task(self._wait_for_init())]
        if action in _WITH_JOIN:
            contenders.append(asyncio.create_task(asyncio.to_thread(self._join_until_stopped)))
        try:
            done, _others = await asyncio.wait(contenders, return_when=asyncio.FIRST_COMPLETED)
            results = [task.result() for task in done]
            if not any(results):  # the join client lost the race to init
                await contenders[0]
        finally:
            contenders[0].cancel()
            self.stop_asking()
            # the losing contender removes its traces before it ends
            await asyncio.gather(*contenders, return_exceptions=True)

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
        """Continue as a node that is locked and whose disk is open, with a new contender, as the first one was stopped.

        A control plane starts its kubelet with the present certificate, which is renewed later: there may be no running
        key service until this kubelet has started the API server.
        """
        if self._services is not None and self.next_action() is BootAction.KUBELET:
            self._resume_kubelet()
            return
        self._settled = JoinContender(self._parts, None)
        self._join(BootAction.JOIN)

    def _join_until_stopped(self) -> bool:
        """Return True once this machine has joined, False if init took the lock first or the client was stopped."""
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
                self._pause.sleep(RETRY_SECONDS)
            except AttestedError:
                return False


class _AwaitableFounder:
    """A founder whose first success can be awaited."""

    def __init__(self, founder: Founder) -> None:
        self._founder = founder
        self._founded: Future[None] = Future()

    def found(
        self, order: InitOrder, bundle: KeyBundle, *, digest: str, judged: Mapping[int, bytes], reporter: JobReporter
    ) -> Success:
        success = self._founder.found(order, bundle, digest=digest, judged=judged, reporter=reporter)
        if not self._founded.done():
            self._founded.set_result(None)
        return success

    async def wait(self) -> None:
        """Return once `found` has succeeded."""
        await asyncio.shield(asyncio.wrap_future(self._founded))
