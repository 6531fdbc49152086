# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rebooted node rejoins by a cluster's ticket, or by an admin's recovery if no cluster answers.

::

    ask --ticket--> claim(rejoin) --> disk --> (keys) --> lock --> kubelet
     |                 one of the two, never both
     +--after a while: listener--> right key --> claim(recovery) --> disk --> lock; asking stops --> kubelet

The listener starts while the node still asks for a ticket, and stops when the disk is open (docs/adr/0040).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..core.command import SystemRunner
from ..errors import AttestedError
from ..reasons import Reason
from ..services.machine_socket import RECOVERY_SOCKET, recovery_service
from ..services.recovery_handler import Contender, Contest
from ..transport.unix_rpc import SocketServer

if TYPE_CHECKING:
    import pwd
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from ..core.command import Runner
    from ..core.logs import Log
    from ..keyservice.master import DiskKey
    from ..keyservice.ring import NamedDiskKey
    from ..keyservice.ticket import SealedSecrets
    from ..services.recovery_handler import RecoveryDesk
    from .member import MemberKeys
    from .order import Lock, StateDisk
    from .state_disk import MachineDisk

RECOVERY_UNIT = "attested-recovery-service.service"

YIELD_SECONDS = 300.0
"""How long a ticket that lost the claim waits until the admin's key has opened the disk or has failed."""

LINGER_SECONDS = 5.0
"""How long the listener runs after the disk is open, so that the admin receives the response."""

_LOOK_SECONDS = 0.5


class ContestedDisk:
    """The node's disk; a ticket opens it only with the claim for which an admin's recovery also competes."""

    def __init__(self, disk: StateDisk, contest: Contest) -> None:
        """Open ``disk`` with a claim of ``contest``."""
        self._disk = disk
        self._contest = contest

    def is_open(self) -> bool:
        """Return whether the volume is open and mounted."""
        return self._disk.is_open()

    def open(self, *, disk_id: str, key: DiskKey | NamedDiskKey | SealedSecrets, member: bool) -> None:
        """Open the disk with a ticket's key; raises RECOVERY_RACE_LOST, and as `StateDisk.open`."""
        with self._contest.claim(Contender.REJOIN):
            self._disk.open(disk_id=disk_id, key=key, member=member)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredNode:
    """Executes the steps of a ticket, in their order, with an admin's key. The steps may be repeated.

    ``keys`` opens the keys of a control plane, which are on its disk; an admin sends none.
    """

    disk: MachineDisk
    disk_id: str
    lock: Lock
    cluster_id: bytes
    keys: MemberKeys | None = None

    def open(self, key_file: Path) -> None:
        """Open the disk of a node that has already joined, and lock the machine to its cluster."""
        self.disk.open_from(key_file, disk_id=self.disk_id, member=True)
        if self.keys is not None:
            self.keys.open()
        self.lock.acquire(self.cluster_id)


class SocketRecoveryListener:
    """Runs the desk of recovery at its socket and starts the network service; both stop with the block."""

    def __init__(
        self,
        desk: Callable[[], AbstractContextManager[RecoveryDesk]],
        *,
        user: Callable[[], pwd.struct_passwd],
        log: Log,
        socket: str | Path = RECOVERY_SOCKET,
        runner: Runner | None = None,
    ) -> None:
        """Accept calls of ``user`` at ``socket``."""
        self._desk = desk
        self._user = user
        self._log = log
        self._socket = Path(socket)
        self._runner = runner or SystemRunner()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Accept an admin's keys; raises CONFIG_INVALID, FILE_UNUSABLE, AUDIT_UNWRITABLE, COMMAND_FAILED."""
        caller = self._user()
        with self._desk() as desk:
            service = recovery_service(desk, log=self._log)
            server = SocketServer(
                self._socket,
                handler=service.handle,
                allowed=frozenset({0, caller.pw_uid}),
                group=caller.pw_gid,
                refused=lambda uid: self._log.event("caller_refused", user=uid),
                stranger=Reason.CALLER_UNKNOWN,
            )
            await server.start()
            try:
                await self._systemctl("start")
                yield
            finally:
                with suppress(AttestedError):  # systemd stops the service with this process at the latest
                    await self._systemctl("stop")
                await server.stop()
                service.close()

    async def _systemctl(self, verb: str) -> None:
        await asyncio.to_thread(self._runner.run, ["systemctl", verb, "--no-block", RECOVERY_UNIT])


class RecoveryListener(Protocol):
    """Receives an admin's recovery (`SocketRecoveryListener`)."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Accept recovery requests as long as the context lasts."""


class StructuredLog(Protocol):
    """A log of events (`core.logs.Log`)."""

    def event(self, name: str, /, **fields: Any) -> None:
        """Write one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The recovery of a node: ``listener`` starts if no cluster has answered for ``after_seconds``."""

    contest: Contest
    listener: RecoveryListener
    after_seconds: float
    linger_seconds: float = LINGER_SECONDS
    yield_seconds: float = YIELD_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """The rejoin by a ticket: ``run`` returns when this machine is a node, ``stop`` stops the client.

    ``resume`` continues after an admin has opened the disk.
    """

    run: Callable[[], None]
    stop: Callable[[], None]
    resume: Callable[[], None]


async def rejoin_or_recover(rejoin: Rejoin, recovery: Recovery, *, log: StructuredLog) -> None:
    """Return when the rebooted machine is a node again, by a ticket or by an admin's recovery.

    Raises the error of the rejoin, unless an admin has opened the disk; then it continues after the disk.
    """
    ticket = asyncio.create_task(asyncio.to_thread(rejoin.run))
    await asyncio.wait({ticket}, timeout=recovery.after_seconds)
    if not ticket.done():
        try:
            async with recovery.listener.opened():
                log.event("recovery", text="No cluster has answered: an admin may recover this node")
                await _decided(ticket, recovery)
        except AttestedError as error:  # without a listener the node can still get a ticket
            log.event("recovery_failed", reason=error.code, message=error.message)
    if recovery.contest.winner is not Contender.RECOVERY:
        await ticket
        return
    log.event("recovered", text="An admin has opened the disk of this node")
    rejoin.stop()
    with suppress(AttestedError):
        await ticket
    await asyncio.to_thread(rejoin.resume)


async def _decided(ticket: asyncio.Task[None], recovery: Recovery) -> None:
    """Return when the disk is open, or when the rejoin has failed and no recovery is opening the disk."""
    opened = asyncio.create_task(_opened(recovery.contest))
    try:
        await asyncio.wait({ticket, opened}, return_when=asyncio.FIRST_COMPLETED)
        if ticket.done() and _lost_race(ticket):
            await asyncio.wait({opened}, timeout=recovery.yield_seconds)
        if recovery.contest.winner is Contender.RECOVERY:
            await asyncio.sleep(recovery.linger_seconds)
    finally:
        opened.cancel()


async def _opened(contest: Contest) -> None:
    while not await asyncio.to_thread(contest.wait, _LOOK_SECONDS):
        pass  # a thread that waits without a limit would outlive the event loop


def _lost_race(ticket: asyncio.Task[None]) -> bool:
    error = ticket.exception()
    return isinstance(error, AttestedError) and error.reason is Reason.RECOVERY_RACE_LOST
