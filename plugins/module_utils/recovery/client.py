# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's side of recovery: judge each node over its own connection, then send it its own key and no other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..atls.client import open_connection
from ..atls.server_check import UnknownServer
from ..attestation import Purpose
from ..errors import AttestedError, Refusal, TransportError
from ..init import ADMIN_METADATA, prove_admin
from ..init.client import Calls, ask, proven
from ..policy import Role
from ..reasons import Reason
from .messages import IDENTIFY, RECOVER, TESTIFY, RecoverAnswer, RecoverOrder
from .outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..atls.client import AttestedConnection
    from ..init import AdminKey
    from ..keys import DiskId
    from ..verification import Question
    from .keys import ClusterKeys

PORT = 9999
RECOVER_SECONDS = 310.0
_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 15.0

_CALLS = Calls(
    identify=IDENTIFY,
    testify=TESTIFY,
    purpose=Purpose.RECOVER,
    later=Reason.RECOVERY_BROKEN_OFF,
    refused=Reason.RECOVERY_REFUSED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedNode:
    """A node to recover: where it listens (host:port), and the id that was assigned to its disk."""

    name: str
    endpoint: str
    role: str
    disk: DiskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescuer:
    """Who recovers: the admin, the cluster's keys, and what every node is judged by."""

    admin: AdminKey
    keys: ClusterKeys = field(repr=False)
    question: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many nodes are asked at the same time, and how long one that does not answer yet is asked again."""

    parallel: int = 16
    seconds: float = 60.0


async def recover(node: LockedNode, rescuer: Rescuer, *, send: bool = True) -> None:
    """Open the disk of one node; nothing secret leaves before the node was judged over this very connection.

    Without ``send`` it is judged, and that is all.

    Raises what judging raises, what the node answers (RECOVERY_..., LUKS_..., STATE_DISK_...), and `TransportError`:
    where ``retryable``, the same again is safe.
    """
    server = UnknownServer()
    async with open_connection(node.endpoint, check=server, issuer=None, clock=rescuer.question.clock) as connection:
        verified, challenge_id = await proven(connection, server, rescuer.question, node=node.name, calls=_CALLS)
        if not send:
            return
        order = RecoverOrder(
            challenge_id=challenge_id,
            measurement_salt=rescuer.keys.measurement_salt,
            sealed=verified.machine.seal(rescuer.keys.of_node(node.disk).to_bytes()),
        )
        await _send(connection, order.to_bytes(), admin=rescuer.admin, binding=verified.machine.binding)


async def recover_cluster(
    nodes: Sequence[LockedNode],
    rescuer: Rescuer,
    *,
    patience: Patience,
    told: Callable[[Outcome], None],
    send: bool = True,
) -> tuple[Outcome, ...]:
    """Recover all control planes at once, then all workers, whatever became of the former; else as `recover_all`."""
    outcomes: list[Outcome] = []
    for planes in (True, False):
        group = [one for one in nodes if (one.role == Role.CONTROL_PLANE.value) is planes]
        outcomes += await recover_all(group, rescuer, patience=patience, told=told, send=send)
    return tuple(outcomes)


async def recover_all(
    nodes: Sequence[LockedNode],
    rescuer: Rescuer,
    *,
    patience: Patience,
    told: Callable[[Outcome], None],
    send: bool = True,
) -> tuple[Outcome, ...]:
    """Return what became of each node, in their order; ``told`` hears of each at once.

    Raises nothing for a node: its failure is its outcome, and the others go on.
    """
    places = asyncio.Semaphore(patience.parallel)

    async def one(node: LockedNode) -> Outcome:
        async with places:
            outcome = await _outcome(node, rescuer, seconds=patience.seconds, send=send)
        told(outcome)
        return outcome

    return tuple(await asyncio.gather(*(one(node) for node in nodes)))


async def _send(connection: AttestedConnection, request: bytes, *, admin: AdminKey, binding: bytes) -> None:
    proof = prove_admin(admin, binding=binding, request=request, purpose=Purpose.RECOVER)
    said = RecoverAnswer.parse(
        await ask(
            connection,
            RECOVER,
            request,
            calls=_CALLS,
            metadata=((ADMIN_METADATA, proof),),
            timeout_seconds=RECOVER_SECONDS,
        )
    )
    if said.code:
        reason = Reason.__members__.get(said.code, Reason.INTERNAL)
        raise Refusal(said.message, reason=reason, hint=said.hint)


async def _outcome(node: LockedNode, rescuer: Rescuer, *, seconds: float, send: bool) -> Outcome:
    clock = rescuer.question.clock
    begun = clock.monotonic()
    error: AttestedError | None = None
    try:
        await _patiently(node, rescuer, until=begun + seconds, send=send)
    except AttestedError as raised:
        error = raised
    return Outcome(
        node=node.name,
        endpoint=node.endpoint,
        role=node.role,
        seconds=clock.monotonic() - begun,
        reason=error.reason if error else None,
        message=error.message if error else "",
        hint=error.hint if error else "",
        sent=send,
    )


async def _patiently(node: LockedNode, rescuer: Rescuer, *, until: float, send: bool) -> None:
    pause = _PAUSE_SECONDS
    while True:
        try:
            await recover(node, rescuer, send=send)
        except TransportError as error:
            wait = max(pause, error.retry_after_seconds)
            if not error.retryable or rescuer.question.clock.monotonic() + wait > until:
                raise
        else:
            return
        await asyncio.sleep(wait)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
