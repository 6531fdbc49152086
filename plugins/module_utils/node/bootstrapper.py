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
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import AttestedError
from ..reasons import Reason
from .boot_action import Course, choose_course, read_membership
from .join_claim import JoinContender, StoppableClock
from .recovery import Asking, come_back

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from ..keyservice.key_bundle import KeyBundle
    from ..services.init_handler import Founder
    from ..services.init_job import Teller
    from ..services.init_messages import InitOrder, Success
    from .claim import ClaimFile, Race
    from .order import Parts
    from .recovery import Recovery
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

_WITH_DOOR = frozenset({Course.RACE, Course.INIT, Course.KEYS})
_WITH_JOIN = frozenset({Course.RACE, Course.JOIN, Course.REJOIN})


class Door(Protocol):
    """Where an admin's init comes in: the socket of the desk, and the service on the network beside it."""

    def opened(self, founder: Founder) -> AbstractAsyncContextManager[None]:
        """Let init requests come to ``founder`` as long as the context lasts; raises FILE_UNUSABLE, COMMAND_FAILED."""


class Story(Protocol):
    """Hears what happens (`serving.Log`)."""

    def event(self, name: str, /, **fields: Any) -> None:
        """Write one line."""


def tell_step(story: Story, name: str, seconds: float) -> None:
    """Say that a step has ended well, and how long it took: what a slow boot is looked through for."""
    story.event("step", name=name, seconds=round(seconds, 3))


class Bootstrapper:
    """Makes a node of this machine, once; may be stopped at any time and started again."""

    def __init__(
        self,
        parts: Parts,
        *,
        race: Race,
        claims: ClaimFile,
        founder: Callable[[Callable[[], None]], Founder],
        door: Door,
        serve_init: bool,
        story: Story,
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
        self._door = door
        self._serve_init = serve_init
        self._story = story
        self._services = services
        self._recovery = recovery
        self._linger_seconds = linger_seconds
        self._contender = JoinContender(parts, race)
        self._settled = JoinContender(parts, None)
        self._pause = StoppableClock(parts.machine.clock)

    def look(self) -> Course:
        """Return the way that is open; raises NODELOCK_…, CLAIM_MALFORMED, NODE_JOURNAL_MALFORMED."""
        parts = self._parts
        return choose_course(
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

    async def go(self, course: Course) -> None:
        """Go ``course`` until this machine is a node and serves as it should; raises what the last step raised."""
        self._story.event("course", course=course.name, text=course.value)
        await self._become_node(course)
        await asyncio.to_thread(self._serve)

    async def _become_node(self, course: Course) -> None:
        if course is Course.KUBELET:
            await asyncio.to_thread(self._resume_kubelet)
            return
        if course is Course.REJOIN and self._recovery is not None:
            asking = Asking(ask=lambda: self._join(course), stop=self._stop_joining, resume=self._resume)
            await come_back(asking, self._recovery, story=self._story)
            return
        if course not in _WITH_DOOR or (course is Course.RACE and not self._serve_init):
            await asyncio.to_thread(self._join, course)
            return
        async with self._door.opened(self._founder):
            await self._first(course)

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
            self._story.event("serves", text="This control plane admits machines")

    async def _first(self, course: Course) -> None:
        """Return when init has ended well, or the join client beside it."""
        ways = [asyncio.create_task(self._founded())]
        if course in _WITH_JOIN:
            ways.append(asyncio.create_task(asyncio.to_thread(self._join_beside)))
        try:
            done, _others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            won = [way.result() for way in done]
            if not any(won):  # the join client gave way to init
                await ways[0]
        finally:
            ways[0].cancel()
            self.stop_asking()
            await asyncio.gather(*ways, return_exceptions=True)  # who gives way removes its traces first

    async def _founded(self) -> bool:
        await self._founder.wait()
        self._story.event("initialised", text="This machine is the first control plane of its cluster")
        await asyncio.sleep(self._linger_seconds)
        return True

    def _join(self, course: Course) -> None:
        outcome = (self._contender if course is Course.RACE else self._settled).run()
        for step in outcome.steps:
            tell_step(self._story, step.name, step.seconds)
        self._story.event("joined", steps=", ".join(step.name for step in outcome.steps))

    def _stop_joining(self) -> None:
        self._settled.stop()

    def _resume(self) -> None:
        """Go on as a node whose disk is open and which is locked, with a contender that nobody has stopped.

        A control plane needs its own kubelet before anybody can give it another certificate: it has that renewed later.
        """
        if self._services is not None and self.look() is Course.KUBELET:
            self._resume_kubelet()
            return
        self._settled = JoinContender(self._parts, None)
        self._join(Course.JOIN)

    def _join_beside(self) -> bool:
        """Return whether this machine has joined; not so where init was faster, or the unit is stopped."""
        while True:
            try:
                self._join(Course.RACE)
            except AttestedError as error:
                if error.reason is Reason.RACE_LOST:
                    return False
                self._story.event("join_failed", reason=error.code, message=error.message)
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
