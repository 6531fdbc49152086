# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's side of recovery: judge each node over its own connection, then send it only its own key."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import AttestedError, KeyServiceError, Refusal, TransportError
from ..keyservice.derive import cluster_id
from ..policy.identity import Role
from ..reasons import Reason
from ..transport.binding import Purpose
from ..transport.certificate import UnknownServer
from ..transport.client import open_connection
from .init_admin import prove_admin
from .init_client import Calls, call_unary, proven
from .init_messages import ADMIN_METADATA
from .recovery_messages import IDENTIFY, RECOVER, TESTIFY, RecoverAnswer, RecoverOrder, RecoverySecrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..admin.kit import Kit
    from ..keyservice.derive import DiskId
    from ..keyservice.key_bundle import KeyBundle
    from ..keyservice.ring import MasterRing
    from ..transport.client import AttestedConnection
    from .init_admin import AdminKey
    from .judge import Question


# The outcome of each node of a recovery, and the table of outcomes. Pure.


class State(Enum):
    """The state of a node after a recovery."""

    RECOVERED = "recovered"
    READY = "can be recovered"
    ALREADY = "another was first"
    SILENT = "does not answer"
    FAILED = "failed"


_SILENT = frozenset({Reason.CONNECTION_CLOSED, Reason.CONNECTION_TIMEOUT, Reason.PEER_UNREACHABLE})
_HEAD = ("node", "role", "result", "seconds", "code", "what to do")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one node: ``reason`` is None if it was recovered, else why not, with message and hint.

    ``sent``: whether its key was sent; without, the node was only judged.
    """

    node: str
    endpoint: str
    role: str
    seconds: float
    reason: Reason | None = None
    message: str = ""
    hint: str = ""
    sent: bool = True

    @property
    def state(self) -> State:
        """The state of the node; ALREADY (it rejoined, or another admin was faster) needs no person."""
        if self.reason is None:
            return State.RECOVERED if self.sent else State.READY
        if self.reason is Reason.RECOVERY_RACE_LOST:
            return State.ALREADY
        return State.SILENT if self.reason in _SILENT else State.FAILED


def needs_a_person(outcomes: Iterable[Outcome]) -> bool:
    """Return whether any node failed or does not answer."""
    return any(one.state in (State.FAILED, State.SILENT) for one in outcomes)


def table(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the lines of a table: a header, a line a node in the order given, and a summary."""
    rows = [_HEAD, *(_row(one) for one in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return (*lines, _sentence(outcomes))


def _row(one: Outcome) -> tuple[str, ...]:
    code = one.reason.name if one.reason else "-"
    hint = one.hint if one.state in (State.FAILED, State.SILENT) else "-"
    return (one.node, one.role, one.state.value, f"{one.seconds:.1f}", code, hint)


def _sentence(outcomes: Sequence[Outcome]) -> str:
    counted = {state: sum(one.state is state for one in outcomes) for state in State}
    parts = [f"{count} {state.value}" for state, count in counted.items() if count]
    return f"{len(outcomes)} nodes: {', '.join(parts)}" if parts else "0 nodes"


PORT = 9999
RECOVER_SECONDS = 310.0
_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 15.0

_CALLS = Calls(
    identify=IDENTIFY,
    testify=TESTIFY,
    purpose=Purpose.RECOVER,
    later=Reason.RECOVERY_BROKEN_OFF,
    refused=Reason.ADMIN_REQUEST_REFUSED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedNode:
    """A node to recover: its recovery service (host:port), and the id that is assigned to its disk."""

    name: str
    endpoint: str
    role: str
    disk: DiskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescuer:
    """The admin's key, the cluster's keys, and what every node is judged by."""

    admin: AdminKey
    keys: ClusterKeys = field(repr=False)
    question: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The number of nodes at the same time, and how long a node that does not answer is tried again."""

    parallel: int = 16
    seconds: float = 60.0


async def recover(node: LockedNode, rescuer: Rescuer, *, send: bool = True) -> None:
    """Open the disk of one node; no secret is sent before the node was judged over this connection.

    Without ``send`` the node is only judged.

    Raises what judging raises, what the node answers (RECOVERY_..., LUKS_..., STATE_DISK_...), and `TransportError`. If
    that is ``retryable``, the same call again is safe.
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
    report: Callable[[Outcome], None],
    send: bool = True,
) -> tuple[Outcome, ...]:
    """Recover all control planes at once, then all workers even if a control plane failed; else as `recover_all`."""
    outcomes: list[Outcome] = []
    for planes in (True, False):
        group = [one for one in nodes if (one.role == Role.CONTROL_PLANE.value) is planes]
        outcomes += await recover_all(group, rescuer, patience=patience, report=report, send=send)
    return tuple(outcomes)


async def recover_all(
    nodes: Sequence[LockedNode],
    rescuer: Rescuer,
    *,
    patience: Patience,
    report: Callable[[Outcome], None],
    send: bool = True,
) -> tuple[Outcome, ...]:
    """Return the outcome of each node, in their order; ``report`` is called with each outcome at once.

    Raises nothing for a node: its failure is its outcome, and the others continue.
    """
    places = asyncio.Semaphore(patience.parallel)

    async def one(node: LockedNode) -> Outcome:
        async with places:
            outcome = await _outcome(node, rescuer, seconds=patience.seconds, send=send)
        report(outcome)
        return outcome

    return tuple(await asyncio.gather(*(one(node) for node in nodes)))


async def _send(connection: AttestedConnection, request: bytes, *, admin: AdminKey, binding: bytes) -> None:
    proof = prove_admin(admin, binding=binding, request=request, purpose=Purpose.RECOVER)
    answer = RecoverAnswer.parse(
        await call_unary(
            connection,
            RECOVER,
            request,
            calls=_CALLS,
            metadata=((ADMIN_METADATA, proof),),
            timeout_seconds=RECOVER_SECONDS,
        )
    )
    if answer.code:
        reason = Reason.__members__.get(answer.code, Reason.INTERNAL)
        raise Refusal(answer.message, reason=reason, hint=answer.hint)


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


# The disk key of one node, which an admin derives from a site's secrets or a recovery kit.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKeys:
    """The secrets of a cluster, which never leave the admin's machine. Raises CLUSTER_ID_MISMATCH."""

    ring: MasterRing = field(repr=False)
    measurement_salt: bytes
    cluster_id: bytes

    def __post_init__(self) -> None:
        """Refuse secrets of two clusters before any node is called."""
        derived = cluster_id(self.ring.carried.measurement_secret, self.measurement_salt)
        if derived != self.cluster_id:
            raise KeyServiceError(
                f"expected the secrets of cluster {self.cluster_id.hex()}, got those of {derived.hex()}",
                reason=Reason.CLUSTER_ID_MISMATCH,
            )

    @classmethod
    def of_kit(cls, kit: Kit) -> ClusterKeys:
        """Return the secrets of an opened recovery kit."""
        return cls(
            ring=kit.ring,
            measurement_salt=kit.measurement_salt,
            cluster_id=kit.cluster_id,
        )

    @classmethod
    def of_bundle(cls, bundle: KeyBundle) -> ClusterKeys:
        """Return the secrets of a site."""
        return cls(
            ring=bundle.ring,
            measurement_salt=bundle.measurement_salt,
            cluster_id=bundle.cluster_id,
        )

    def of_node(self, disk: DiskId) -> RecoverySecrets:
        """Return the secrets that may be sent to the node with ``disk``, sealed to it."""
        first, *others = self.ring.disk_keys(disk)
        return RecoverySecrets(
            disk=disk,
            disk_key=first.key,
            measurement_secret=self.ring.carried.measurement_secret,
            other_disk_keys=tuple(one.key for one in others),
        )
