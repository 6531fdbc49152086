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
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ..errors import AttestedError, NodeLockError
from ..evidence.eventlog.nodelock import LockState
from ..evidence.node_lock import require_open_to
from ..reasons import Reason
from .claim import Contender
from .join_claim import JoinContender, StoppableClock
from .journal import NodePhase
from .recovery import Rejoin, rejoin_or_recover
from .state_disk import is_founded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from ..evidence.eventlog.nodelock import LockReading
    from ..keyservice.key_bundle import KeyBundle
    from ..kubeadm.operation import Machine
    from ..services.init_handler import Founder, JobReporter
    from ..services.init_messages import InitOrder, Success
    from .claim import Claim, ClaimFile, Race
    from .journal import NodeJournal
    from .order import Parts
    from .playbook import Services
    from .recovery import Recovery, StructuredLog


# Chooses what a bootstrapper does when it starts, from the lock, the disk and the claim of the machine. Pure.


class BootAction(Enum):
    """What the bootstrapper can do in this boot; the value is the text for a person."""

    RACE = "Wait for an init request and ask for a ticket, whichever comes first"
    INIT = "Continue the init request that has taken the lock"
    JOIN = "Continue the join that has taken the lock"
    KEYS = "Wait for the keys that this control plane lost at its reboot"
    REJOIN = "Ask for a ticket again, then lock and start the kubelet"
    KUBELET = "Make sure that the kubelet runs"


class Membership(Enum):
    """How far this machine has become a node, as the journals on its disk record it; kept over resets."""

    NONE = "none"
    JOINING = "joining"
    JOINED = "joined"
    INITIALISING = "initialising"
    INITIALISED = "initialised"


_UNLOCKED = {
    Membership.NONE: BootAction.RACE,
    Membership.JOINING: BootAction.REJOIN,
    Membership.JOINED: BootAction.REJOIN,
    Membership.INITIALISING: BootAction.KEYS,
    Membership.INITIALISED: BootAction.KEYS,
}
_LOCKED = {
    Membership.JOINING: BootAction.JOIN,
    Membership.JOINED: BootAction.KUBELET,
    Membership.INITIALISING: BootAction.INIT,
    Membership.INITIALISED: BootAction.KUBELET,
}
_CLAIMED = {Contender.INIT: BootAction.INIT, Contender.JOIN: BootAction.JOIN}


def choose_action(
    reading: LockReading, *, cluster_id: bytes, membership: Membership, claim: Claim | None, has_disk: bool = False
) -> BootAction:
    """Return the action for a machine in the given state.

    The lock register decides first, then the disk, then the claim. A member is never initialised or joined a second
    time. After a reset it asks for a ticket, and a founder waits for its keys. A founder with a state disk has its keys
    on the disk, so it rejoins like any other node. Raises NODELOCK_FOREIGN, NODELOCK_OTHER_CLUSTER, and
    NODELOCK_UNCLAIMED for a lock that neither disk nor claim explains.
    """
    require_open_to(reading, cluster_id)
    if reading.state is LockState.UNLOCKED:
        if has_disk and membership is Membership.INITIALISED:
            return BootAction.REJOIN
        return _UNLOCKED[membership]
    if membership is not Membership.NONE:
        return _LOCKED[membership]
    if claim is None:
        raise NodeLockError(
            "expected the disk or a claim to record what took the lock of this machine, found neither",
            reason=Reason.NODELOCK_UNCLAIMED,
        )
    return _CLAIMED[claim.contender]


def read_membership(machine: Machine, journal: NodeJournal) -> Membership:
    """Return the membership from the two journals of this machine; raises NODE_JOURNAL_MALFORMED."""
    progress = machine.journal.load()
    if progress is not None and progress.operation == "init":
        return Membership.INITIALISED if is_founded(machine) else Membership.INITIALISING
    phase = journal.load().phase
    if phase is NodePhase.JOINED:
        return Membership.JOINED
    return Membership.JOINING if phase in (NodePhase.LOCKED, NodePhase.JOINING) else Membership.NONE


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
