# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of one node in their order: ticket → disk → keys → lock → write → kubeadm → confirm.

A run first reads the state of the machine. Only a control plane stores keys; it does so before it takes the lock, as at
init. Only a machine whose site names a state disk opens one.
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


# Which steps one node still has to do. Pure.

RENEW_BELOW_SECONDS = 24 * 3600
"""A kubelet certificate that ends sooner is replaced."""


class StepName(Enum):
    """The steps of a node in their order; the value is the text for a person."""

    TICKET = "Fetch the ticket"
    KEYS = "Keep the cluster's keys"
    LOCK = "Lock the machine to its cluster"
    WRITE = "Write the kubelet's credential"
    KUBEADM = "Join with kubeadm"
    RESTART = "Let the kubelet read its new credential"
    CONFIRM = "See the Node appear"


class DiskStep(Enum):
    """The step of a machine with a state disk.

    It is a separate type, because all other machines have only `StepName`. It comes after the ticket, which contains
    the disk's key, and before keys and lock (docs/adr/0040, 0048).
    """

    DISK = "Open the state disk"


NodeStep: TypeAlias = StepName | DiskStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The present state of the machine.

    ``certificate_seconds`` is the remaining time of the kubelet's certificate (None: no certificate). ``kubeadm_left``:
    kubeadm or the start of the kubelet is still to do. ``confirmed``: the Node was seen in this boot. ``takes_keys``:
    the machine is or becomes a control plane, whose ticket contains the keys of its key service. ``disk_closed``: the
    machine has a state disk, which is not open.
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

    A ticket is needed if the machine is not locked (fresh or rebooted), its certificate is missing or ends soon, or its
    state disk is closed. After the lock a failure is repaired forward: finished steps are kept, missing steps are
    done. Keys come before the lock, because they are sealed to the register that the lock changes. The disk comes
    before the lock, because the lock's marker lets the kubelet start, which must write only to the disk. The disk comes
    before the keys, because they are stored on it.
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
    """The additional content of a control plane's ticket: shared files by name, keys and policy.

    ``bundle`` is an `attested.v1.InitBundle`, ``policy`` the signed policy in JSON, ``judged`` the register values that
    the key service has verified for this ticket.
    """

    files: Mapping[str, bytes] = field(repr=False)
    bundle: bytes = field(repr=False)
    policy: bytes = field(repr=False)
    judged: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTicket:
    """The used content of an opened ticket, which was checked to be for this cluster, node and key.

    ``disk_key`` is None on a machine without a state disk, and sealed if the ticket was not opened in this process.
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
    """Requests tickets from the join services."""

    def fetch(self, *, disk_id: str | None) -> NodeTicket:
        """Return an opened ticket; raises the refusal of the service, the channel or this machine."""

    def discard(self) -> None:
        """Remove key and ticket; the kubelet has its own copy."""

    def pause(self, error: AttestedError) -> float | None:
        """Return after how many seconds the same request may succeed, None if it never will."""


class Lock(Protocol):
    """The one-way lock of this machine."""

    def read(self) -> LockReading:
        """Return the present reading."""

    def acquire(self, cluster_id: bytes) -> Acquisition:
        """Take the lock."""


class Joiner(Protocol):
    """Makes a node of this machine with kubeadm (`kubeadm.Worker`, `kubeadm.ControlPlaneMember`)."""

    def plan(self) -> Plan:
        """Return the phases to do."""

    def write(self, material: JoinMaterial) -> bool:
        """Write what kubeadm and kubelet need; return whether anything changed."""

    def apply(self, todo: Plan) -> tuple[Step, ...]:
        """Perform ``todo``."""

    def confirm(self, *, boot_id: Path) -> NodeView:
        """Wait for the Node object of this boot."""


class KeyTaker(Protocol):
    """Stores the keys of a control plane's key service (`member.MemberKeys`)."""

    def take(self, brought: ControlPlaneTicket) -> bool:
        """Store the keys, sealed to the verified registers of the unlocked machine.

        Return whether anything changed.
        """


class Boots(Protocol):
    """Records what was booted when a ticket was given (`boot_record.BootRecord`)."""

    def keep(self) -> None:
        """Record this boot as accepted; raises nothing."""

    def difference(self) -> str:
        """Return the differences from the last accepted boot as a clause, "" if they are unknown."""


class StateDisk(Protocol):
    """The disk that holds this node's state (`state_disk.MachineDisk`)."""

    def is_open(self) -> bool:
        """Return whether the volume is open, mounted at its directories, and recorded."""

    def open(self, *, disk_id: str, key: DiskKey | NamedDiskKey | SealedSecrets, member: bool) -> None:
        """Open the disk; format an unused one first, except for a ``member``. Raises STATE_DISK_…, LUKS_…."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The collaborators of one node; only a control plane has ``keys``.

    ``disk`` is None if the site names no state disk, ``boots`` is None if accepted boots are not recorded.
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
        """The role for which this machine requests its ticket."""
        return WORKER if self.keys is None else CONTROL_PLANE


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The executed steps (empty: nothing was to do), and the plan that they followed."""

    planned: tuple[NodeStep, ...]
    steps: tuple[Step, ...] = ()


class NodeRun:
    """One run on one node; a run after a kill, a failure or a reboot reaches the same state as the first."""

    def __init__(self, parts: Parts) -> None:
        """Store the collaborators."""
        self._parts = parts
        self._ticket: NodeTicket | None = None

    def plan(self) -> tuple[NodeStep, ...]:
        """Read the machine's state and return the steps to do.

        Raises NODELOCK_FOREIGN, NODELOCK_OTHER_CLUSTER.
        """
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
        """Execute the steps ``todo``; retry a ticket that is not yet available for up to ``wait_seconds``.

        A failure is recorded in the journal (code and message), so `attested status` can show why the node waits.
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
        """Return a ticket; add the differences from the last accepted boot to the message of a refusal."""
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
        """Return whether this is a joined control plane, which `attested-unlock` brings back without these steps."""
        return self._parts.keys is not None and self._parts.journal.load().phase is NodePhase.JOINED

    def _opened(self) -> NodeTicket:
        if self._ticket is None:
            raise Refusal("expected a ticket before its content is written", reason=Reason.INTERNAL)
        return self._ticket


def require_role(ticket: NodeTicket, role: str) -> None:
    """Check that the ticket is for ``role`` and only a control plane's has keys and files.

    Raises TICKET_NOT_OURS.
    """
    if ticket.role != role or (ticket.control_plane is not None) != (role == CONTROL_PLANE):
        raise Refusal(f"expected the ticket of a {role}, got that of a {ticket.role}", reason=Reason.TICKET_NOT_OURS)
