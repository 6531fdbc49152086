# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rebooted node between two helpers: a cluster's ticket, and an admin who recovers it where no cluster answers.

::

    ask --ticket--> claim(rejoin) --> disk --> (keys) --> lock --> kubelet
     |                 one of the two, never both
     +--after a while: door open--> right key --> claim(recovery) --> disk --> lock; the asking ends --> kubelet

The door opens beside the asking and closes when the disk is open, whoever opened it (docs/adr/0040).
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
from ..services.recovery_contest import Contender, Contest
from ..transport.unix_rpc_server import SocketServer

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
"""How long a ticket that came second waits for an admin's key to have opened the disk, or to have failed."""

LINGER_SECONDS = 5.0
"""The admin's answer leaves through the door after the disk is open."""

_LOOK_SECONDS = 0.5


class ContestedDisk:
    """The node's disk, which a ticket opens only by the claim that an admin's recovery asks for as well."""

    def __init__(self, disk: StateDisk, contest: Contest) -> None:
        """Open ``disk`` by ``contest``."""
        self._disk = disk
        self._contest = contest

    def is_open(self) -> bool:
        """Return whether the volume of this boot is in its places."""
        return self._disk.is_open()

    def open(self, *, disk_id: str, key: DiskKey | NamedDiskKey | SealedSecrets, member: bool) -> None:
        """Open it for the cluster; raises RECOVERY_RACE_LOST, and what the disk raises."""
        with self._contest.claim(Contender.REJOIN):
            self._disk.open(disk_id=disk_id, key=key, member=member)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredNode:
    """What an admin's right key does: the steps of a ticket, in their order. May be repeated.

    ``keys`` are those of a control plane, which lie on its disk: an admin sends none.
    """

    disk: MachineDisk
    disk_id: str
    lock: Lock
    cluster_id: bytes
    keys: MemberKeys | None = None

    def open(self, key_file: Path) -> None:
        """Open the disk of a node that has joined before, and lock the machine to its cluster."""
        self.disk.open_from(key_file, disk_id=self.disk_id, member=True)
        if self.keys is not None:
            self.keys.open()
        self.lock.acquire(self.cluster_id)


class SocketRecoveryListener:
    """The desk at its socket, and the service on the network beside it; both end with the block."""

    def __init__(
        self,
        desk: Callable[[], AbstractContextManager[RecoveryDesk]],
        *,
        user: Callable[[], pwd.struct_passwd],
        log: Log,
        socket: str | Path = RECOVERY_SOCKET,
        runner: Runner | None = None,
    ) -> None:
        """Let ``user`` ask at ``socket``."""
        self._desk = desk
        self._user = user
        self._log = log
        self._socket = Path(socket)
        self._runner = runner or SystemRunner()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Let an admin offer keys; raises CONFIG_INVALID, FILE_UNUSABLE, AUDIT_UNWRITABLE, COMMAND_FAILED."""
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
                with suppress(AttestedError):  # it ends with this process at the latest
                    await self._systemctl("stop")
                await server.stop()
                service.close()

    async def _systemctl(self, verb: str) -> None:
        await asyncio.to_thread(self._runner.run, ["systemctl", verb, "--no-block", RECOVERY_UNIT])


class RecoveryListener(Protocol):
    """Where an admin's recovery comes in (`SocketRecoveryListener`)."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Let it come in as long as the context lasts."""


class StructuredLog(Protocol):
    """Hears what happens (`serving.Log`)."""

    def event(self, name: str, /, **fields: Any) -> None:
        """Write one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The other way of a rebooted node: ``door`` opens where nobody has answered for ``after_seconds``."""

    contest: Contest
    listener: RecoveryListener
    after_seconds: float
    linger_seconds: float = LINGER_SECONDS
    yield_seconds: float = YIELD_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """The way of a ticket: ``ask`` returns when this is a node, ``stop`` ends it, ``resume`` goes on after the disk."""

    run: Callable[[], None]
    stop: Callable[[], None]
    resume: Callable[[], None]


async def rejoin_or_recover(rejoin: Rejoin, recovery: Recovery, *, log: StructuredLog) -> None:
    """Return when the rebooted machine is a node again, by whichever helper was first.

    Raises what the asking raised, unless an admin has opened the disk: then it goes on from there.
    """
    ticket = asyncio.create_task(asyncio.to_thread(rejoin.run))
    await asyncio.wait({ticket}, timeout=recovery.after_seconds)
    if not ticket.done():
        try:
            async with recovery.listener.opened():
                log.event("recovery", text="No cluster has answered: an admin may recover this node")
                await _decided(ticket, recovery)
        except AttestedError as error:  # a door that does not open keeps nobody from the cluster's ticket
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
    """Return when somebody has opened the disk, or the asking has failed while nobody is opening it."""
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
        pass  # a thread that waits for good would outlive the process' loop


def _lost_race(ticket: asyncio.Task[None]) -> bool:
    error = ticket.exception()
    return isinstance(error, AttestedError) and error.reason is Reason.RECOVERY_RACE_LOST
