# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of one node: ticket → disk → keys → lock → write → kubeadm → confirm. A run begins with a look at it.

A worker has no keys to keep, a control plane keeps those of its key service before it locks itself, as at init. A disk
has only the machine whose site names one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..core.files import make_directory, write_atomic
from ..errors import AttestedError, Refusal
from ..evidence.eventlog.nodelock import LockState
from ..evidence.node_lock import require_open_to
from ..kubeadm.credential import KubeletCredential, remaining_seconds
from ..kubeadm.gateway import require_prepared
from ..kubeadm.node import JoinMaterial
from ..reasons import Reason
from ..result import Step
from .journal import NodeJournal, NodePhase
from .retry import ask_again

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..evidence.eventlog.nodelock import LockReading
    from ..evidence.node_lock import Acquisition
    from ..keyservice.master import DiskKey
    from ..keyservice.ring import NamedDiskKey
    from ..keyservice.ticket import SealedSecrets
    from ..kubeadm.api import NodeView
    from ..kubeadm.operation import Machine, Plan
    from .config import NodeConfig


# Which steps one node still has before it. Pure.

RENEW_BELOW_SECONDS = 24 * 3600
"""A kubelet certificate with less left is fetched anew."""


class StepName(Enum):
    """The steps of a node in their order; the value is what a person reads."""

    TICKET = "Fetch the ticket"
    KEYS = "Keep the cluster's keys"
    LOCK = "Lock the machine to its cluster"
    WRITE = "Write the kubelet's credential"
    KUBEADM = "Join with kubeadm"
    RESTART = "Let the kubelet read its new credential"
    CONFIRM = "See the Node appear"


class DiskStep(Enum):
    """The step that only a machine with a state disk has; kept apart, so that every other machine's steps are as above.

    It comes after the ticket, which brings the key, and before keys and lock (docs/adr/0040, 0048).
    """

    DISK = "Open the state disk"


NodeStep: TypeAlias = StepName | DiskStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The machine as found.

    ``certificate_seconds`` is what is left of the kubelet's certificate (None: there is none), ``kubeadm_left``
    whether kubeadm or the start of the kubelet is to do, ``confirmed`` whether the Node of this boot was seen.
    ``takes_keys``: it is (to be) a control plane, whose ticket brings what its key service holds. ``disk_closed``: it
    has a state disk, which is not open.
    """

    lock: LockState
    marker: bool
    certificate_seconds: float | None
    kubeadm_left: bool
    confirmed: bool
    takes_keys: bool = False
    disk_closed: bool = False


def plan_steps(found: Found) -> tuple[NodeStep, ...]:
    """Return the steps to do, none for a node that is up.

    A ticket is needed on a machine that is not locked (a fresh or a rebooted one), whose certificate is missing or
    short, or whose state disk is closed. After the lock everything is repaired forward: what is in place is kept, what
    is missing is done. Keys come before the lock, because they are sealed to the register that it changes; the disk
    does, because the kubelet starts on the lock's marker, and nothing of it may be written beside the disk. Keys lie on
    the disk of a machine that has one, so it is open before them.
    """
    ticket = found.lock is LockState.UNLOCKED or found.disk_closed or _is_short(found.certificate_seconds)
    steps: dict[NodeStep, bool] = {
        StepName.TICKET: ticket,
        DiskStep.DISK: found.disk_closed,
        StepName.KEYS: ticket and found.takes_keys,
        StepName.LOCK: found.lock is LockState.UNLOCKED or not found.marker,
        StepName.WRITE: ticket,
        StepName.KUBEADM: found.kubeadm_left,
        StepName.RESTART: ticket and not found.kubeadm_left,
    }
    todo = tuple(name for name, needed in steps.items() if needed)
    return (*todo, StepName.CONFIRM) if todo or not found.confirmed else ()


def _is_short(seconds: float | None) -> bool:
    return seconds is None or seconds < RENEW_BELOW_SECONDS


WORKER = "worker"
CONTROL_PLANE = "control-plane"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneTicket:
    """What a ticket brings a control plane beside: shared files by name, and what its key service holds and believes.

    ``bundle`` is an `attested.v1.InitBundle`, ``policy`` the signed policy in JSON, ``judged`` the register values that
    the key service has judged for it.
    """

    files: Mapping[str, bytes] = field(repr=False)
    bundle: bytes = field(repr=False)
    policy: bytes = field(repr=False)
    judged: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTicket:
    """What the order needs of an opened ticket (which was checked to be for this cluster, node and key).

    ``disk_key`` is None on a machine without a state disk, and sealed where the ticket was not opened in this process.
    """

    role: str
    disk_id: str
    kubernetes_version: str
    api_endpoint: str
    cluster_ca: bytes
    credential: KubeletCredential = field(repr=False)
    control_plane: ControlPlaneTicket | None = None
    disk_key: DiskKey | SealedSecrets | None = field(default=None, repr=False)


class TicketSource(Protocol):
    """Asks the join services for a ticket."""

    def fetch(self, *, disk_id: str | None) -> NodeTicket:
        """Return an opened ticket; raises what the service, the channel or this machine refused."""

    def discard(self) -> None:
        """Forget key and ticket: the kubelet has its own copy now."""

    def pause(self, error: AttestedError) -> float | None:
        """Return after how many seconds the same request may be answered, None where it never will."""


class Lock(Protocol):
    """The one-way lock of this machine."""

    def read(self) -> LockReading:
        """Return the reading now."""

    def acquire(self, cluster_id: bytes) -> Acquisition:
        """Take the lock."""


class Joiner(Protocol):
    """Makes a node of this machine with kubeadm (`kubeadm.Worker`, `kubeadm.ControlPlaneMember`)."""

    def plan(self) -> Plan:
        """Return what is to do."""

    def write(self, material: JoinMaterial) -> bool:
        """Write what kubeadm and kubelet need; return whether anything changed."""

    def apply(self, todo: Plan) -> tuple[Step, ...]:
        """Perform ``todo``."""

    def confirm(self, *, boot_id: Path) -> NodeView:
        """Wait for the Node object of this boot."""


class KeyTaker(Protocol):
    """Takes what the key service of a control plane holds (`member.MemberKeys`)."""

    def take(self, brought: ControlPlaneTicket) -> bool:
        """Keep it, sealed to the unlocked machine as it was judged; return whether anything changed."""


class Boots(Protocol):
    """Remembers what was booted when a ticket was given (`boot_record.BootRecord`)."""

    def keep(self) -> None:
        """Remember this boot as a good one; raises nothing."""

    def difference(self) -> str:
        """Return what differs from the last good one as a clause, empty where that is not known."""


class StateDisk(Protocol):
    """The disk that this node's state lies on (`state_disk.MachineDisk`)."""

    def is_open(self) -> bool:
        """Return whether the volume of this boot is in the place of its directories, and is remembered."""

    def open(self, *, disk_id: str, key: DiskKey | NamedDiskKey | SealedSecrets, member: bool) -> None:
        """Open it, made before if nobody has used it; a ``member``'s is never made. Raises STATE_DISK_…, LUKS_…."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The collaborators of one node; ``keys`` makes the difference of a control plane, a worker has none.

    ``disk`` is None where the site names no state disk, ``boots`` where nothing is remembered of them.
    """

    config: NodeConfig
    machine: Machine
    joiner: Joiner
    lock: Lock
    tickets: TicketSource
    journal: NodeJournal
    marker: Path = Path("/run/attested/locked")
    boot_id: Path = Path("/proc/sys/kernel/random/boot_id")
    confirmed: Path = Path("/run/attested/joined")
    keys: KeyTaker | None = None
    disk: StateDisk | None = None
    boots: Boots | None = None

    @property
    def role(self) -> str:
        """As what this machine asks for its ticket."""
        return WORKER if self.keys is None else CONTROL_PLANE


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was done (empty: nothing was to do), and the plan it followed."""

    planned: tuple[NodeStep, ...]
    steps: tuple[Step, ...] = ()


class NodeRun:
    """One run on one node; a run after a kill, a failure or a reboot ends where the first would have ended."""

    def __init__(self, parts: Parts) -> None:
        """Keep the collaborators."""
        self._parts = parts
        self._ticket: NodeTicket | None = None

    def plan(self) -> tuple[NodeStep, ...]:
        """Look at the machine and return what is to do; raises NODELOCK_FOREIGN, NODELOCK_OTHER_CLUSTER."""
        parts = self._parts
        reading = parts.lock.read()
        require_open_to(reading, parts.config.cluster_id)
        return plan_steps(
            Found(
                lock=reading.state,
                marker=parts.marker.exists(),
                certificate_seconds=remaining_seconds(parts.machine.paths, clock=parts.machine.clock),
                kubeadm_left=bool(parts.joiner.plan()),
                confirmed=parts.confirmed.exists() or self._is_member(),
                takes_keys=parts.keys is not None,
                disk_closed=parts.disk is not None and not parts.disk.is_open(),
            )
        )

    def apply(self, todo: Sequence[NodeStep], *, wait_seconds: float = 0.0) -> Outcome:
        """Do ``todo``; a ticket that cannot be had yet is asked for again for ``wait_seconds``.

        A failure is kept in the journal (its code, its message), so `attested status` can say why the node waits.
        """
        try:
            steps = [step for name in todo for step in self._do(name, wait_seconds)]
        except AttestedError as error:
            self._parts.journal.fail(error)
            raise
        return Outcome(planned=tuple(todo), steps=tuple(steps))

    def _do(self, name: NodeStep, wait_seconds: float) -> list[Step]:
        actions: dict[NodeStep, Callable[[], Sequence[Step] | None]] = {
            StepName.TICKET: lambda: self._fetch(wait_seconds),
            StepName.KEYS: self._keep_keys,
            DiskStep.DISK: self._open_disk,
            StepName.LOCK: self._lock,
            StepName.WRITE: self._write,
            StepName.KUBEADM: self._kubeadm,
            StepName.RESTART: self._parts.machine.kubelet.restart,
            StepName.CONFIRM: self._confirm,
        }
        clock = self._parts.machine.clock
        begun = clock.monotonic()
        own = actions[name]()
        if own is not None:
            return list(own)
        return [Step(name=name.name.lower(), title=name.value, seconds=clock.monotonic() - begun)]

    def _fetch(self, wait_seconds: float) -> None:
        state = self._parts.journal.load()
        if state.phase is NodePhase.FRESH:
            state = self._parts.journal.enter(NodePhase.ASKING)
        ticket = self._ask(state.disk_id, wait_seconds)
        require_role(ticket, self._parts.role)
        member = state.phase is NodePhase.JOINED
        require_prepared(self._parts.machine.runner, version=ticket.kubernetes_version, member=member)
        self._parts.journal.enter(
            self._parts.journal.load().phase, disk_id=ticket.disk_id, kubernetes_version=ticket.kubernetes_version
        )
        self._ticket = ticket

    def _ask(self, disk_id: str | None, wait_seconds: float) -> NodeTicket:
        return ask_again(
            lambda: self._explained(disk_id),
            pause=self._parts.tickets.pause,
            clock=self._parts.machine.clock,
            wait_seconds=wait_seconds,
            waits=self._note,
        )

    def _explained(self, disk_id: str | None) -> NodeTicket:
        """Return a ticket; a refusal also says what this machine itself sees that it booted otherwise."""
        boots = self._parts.boots
        try:
            ticket = self._parts.tickets.fetch(disk_id=disk_id)
        except AttestedError as error:
            if boots is not None and error.reason is Reason.TICKET_REFUSED and (difference := boots.difference()):
                error.message = f"{error.message}; {difference}"
            raise
        if boots is not None:
            boots.keep()
        return ticket

    def _note(self, error: AttestedError, seconds: float) -> None:
        self._parts.journal.fail(error, next_try_seconds=seconds)

    def _keep_keys(self) -> None:
        brought, keys = self._opened().control_plane, self._parts.keys
        if brought is None or keys is None:
            raise Refusal("expected the ticket of a control plane", reason=Reason.INTERNAL)
        keys.take(brought)

    def _open_disk(self) -> None:
        ticket, disk = self._opened(), self._parts.disk
        if disk is None or ticket.disk_key is None:
            raise Refusal("expected the ticket of a machine with a state disk", reason=Reason.INTERNAL)
        member = self._parts.journal.load().phase not in (NodePhase.FRESH, NodePhase.ASKING)
        disk.open(disk_id=ticket.disk_id, key=ticket.disk_key, member=member)
        self._ticket = replace(ticket, disk_key=None)

    def _lock(self) -> None:
        self._parts.lock.acquire(self._parts.config.cluster_id)
        if self._parts.journal.load().phase in (NodePhase.FRESH, NodePhase.ASKING):
            self._parts.journal.enter(NodePhase.LOCKED)

    def _write(self) -> None:
        ticket = self._opened()
        brought = ticket.control_plane
        self._parts.joiner.write(
            JoinMaterial(
                cluster_name=self._parts.config.cluster_name,
                api_endpoint=ticket.api_endpoint,
                ca=ticket.cluster_ca,
                credential=ticket.credential,
                control_plane_files=brought.files if brought else {},
            )
        )
        self._parts.tickets.discard()

    def _kubeadm(self) -> tuple[Step, ...]:
        if self._parts.journal.load().phase is not NodePhase.JOINED:
            self._parts.journal.enter(NodePhase.JOINING)
        return self._parts.joiner.apply(self._parts.joiner.plan())

    def _confirm(self) -> None:
        self._parts.joiner.confirm(boot_id=self._parts.boot_id)
        self._parts.journal.enter(NodePhase.JOINED)
        make_directory(self._parts.confirmed.parent, mode=0o711)
        write_atomic(self._parts.confirmed, b"", mode=0o644)

    def _is_member(self) -> bool:
        """Whether this is a control plane that was seen once: its boots are `attested-unlock`'s, without an order."""
        return self._parts.keys is not None and self._parts.journal.load().phase is NodePhase.JOINED

    def _opened(self) -> NodeTicket:
        if self._ticket is None:
            raise Refusal("expected a ticket before its content is written", reason=Reason.INTERNAL)
        return self._ticket


def require_role(ticket: NodeTicket, role: str) -> None:
    """Check that the ticket is for ``role``: keys and files for a control plane, none else; raises TICKET_NOT_OURS."""
    if ticket.role != role or (ticket.control_plane is not None) != (role == CONTROL_PLANE):
        raise Refusal(f"expected the ticket of a {role}, got that of a {ticket.role}", reason=Reason.TICKET_NOT_OURS)
