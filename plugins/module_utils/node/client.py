# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a node with the real collaborators: TPM, join services, kubeadm. This module imports grpc."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import read_bytes
from ..core.host import SystemClock, SystemRandom
from ..errors import DiskError, KubeadmError
from ..evidence.evidence import EventLogs
from ..evidence.node_lock import NodeLock, NodeLockPaths
from ..kubeadm.cluster import node_spec
from ..kubeadm.credential import KubeletCredential
from ..kubeadm.node import ControlPlaneMember, ReturningFounder, Worker
from ..kubeadm.operation import Machine, is_control_plane
from ..kubeadm.reset import Reset
from ..kubeadm.spec import KubernetesPaths, NodeSpec
from ..policy.identity import Role
from ..reasons import Reason
from ..result import Diff, Result
from ..services.handshake_evidence import OccasionalAttester
from ..services.join_client import JoinConfig, JoinMachine, fetch_closed_ticket, fetch_ticket
from ..services.join_endpoints import Favourite
from ..services.retry_policy import first_window
from ..services.ticket_store import TicketStore
from ..tpm.client import open_tpm
from ..tpm.keys import load_attestation_key, load_endorsement_key
from ..transport.pins import JoinCaPins
from .boot_record import BootRecord
from .config import NodeConfig, load_node_config
from .journal import NodeJournal, NodePhase
from .member import MemberKeys
from .order import ControlPlaneTicket, NodeRun, NodeTicket, Parts
from .retry import Backoff, ask_again
from .state_disk import MINIMUM_BYTES, DiskSettings, MachineDisk, is_founded
from .wipe import DestroyedDisk, Wipe, known_disk_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..errors import AttestedError
    from ..evidence.eventlog.nodelock import LockReading
    from ..evidence.node_lock import Acquisition
    from ..keyservice.master import DiskKey
    from ..keyservice.ticket import SealedSecrets
    from ..services.received_ticket import ClosedTicket, TicketMaterial
    from ..tpm.client import Tpm
    from .order import Joiner

_LOG_LIMIT = 1 << 20
_COMMAND_LINE_LIMIT = 1 << 14


def run_node(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Execute the module `kubeadm_node`; raises what the failed step raised."""
    config = load_node_config(params["node_config"])
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
    if params["state"] == "absent":
        return _absent(config, machine, params, check_mode=check_mode)
    spec = node_spec({**params, "node_name": config.name})
    require_api_proxy(spec, machine.paths)
    journal = NodeJournal(clock=machine.clock)
    role, disk = Role(params["role"]), _disk_settings(params)
    if disk is not None and role is Role.CONTROL_PLANE:
        raise DiskError(
            "expected a control plane with a state disk to join by attested-bootstrapper, which opens the disk after a "
            "reboot",
            reason=Reason.STATE_DISK_OPTION,
        )
    tickets = JoinTickets(
        config,
        spec,
        store=TicketStore(),
        handle=params["ticket"],
        role=role,
        keeps_closed=disk is not None,
    )
    run = NodeRun(make_parts(config, spec, machine, tickets=tickets, journal=journal, disk=disk))
    todo = run.plan()
    before = journal.load().phase
    steps = () if check_mode else run.apply(todo, wait_seconds=params["wait_seconds"]).steps
    return Result(
        changed=bool(todo),
        values={
            "planned": [name.value for name in todo],
            "steps": [{**step.as_result(), "changed": True} for step in steps],
            "phase": journal.load().phase.value,
            "kubernetes_version": journal.load().kubernetes_version or "",
        },
        diff=Diff(
            before=f"{before.value}\n",
            after="".join(f"{name.value}\n" for name in todo) + f"{NodePhase.JOINED.value}\n",
        ),
    )


def require_api_proxy(spec: NodeSpec, paths: KubernetesPaths) -> None:
    """Raise OPTION_INVALID if the kubelet has to use a proxy that is not installed on this machine."""
    if spec.api_proxy and not paths.api_endpoint.exists():
        raise KubeadmError(
            f"expected the proxy at {spec.api_proxy} to be installed ({paths.api_endpoint}), it is not; run the "
            "playbook prepare",
            reason=Reason.OPTION_INVALID,
        )


def make_parts(
    config: NodeConfig,
    spec: NodeSpec,
    machine: Machine,
    *,
    tickets: JoinTickets,
    journal: NodeJournal,
    disk: DiskSettings | None = None,
) -> Parts:
    """Return the real collaborators of a node in the role that ``tickets`` asks for."""
    if tickets.role is Role.CONTROL_PLANE:
        joiner: Joiner = (ReturningFounder if is_founded(machine) else ControlPlaneMember)(spec, machine)
        keys = MemberKeys(config, lock_paths=lock_paths(config), on_disk=disk is not None)
    else:
        joiner, keys = Worker(spec, machine), None
    return Parts(
        config=config,
        machine=machine,
        joiner=joiner,
        lock=MachineLock(config),
        tickets=tickets,
        journal=journal,
        keys=keys,
        disk=None if disk is None else MachineDisk(disk, tcti=config.tcti, role=tickets.role),
        boots=BootRecord(partial(read_logs, config)),
    )


def run_ticket(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Execute the module `join_ticket`."""
    store = TicketStore()
    if params["state"] == "absent":
        exists = params["handle"] in store.handles()
        if exists and not check_mode:
            store.discard(params["handle"])
        return Result(changed=exists)
    if check_mode:
        return Result(changed=True)
    config = load_node_config(params["node_config"])
    clock = SystemClock()
    journal = NodeJournal(clock=clock)
    tickets = JoinTickets(config, None, store=store, handle=None, role=Role(params["role"]))
    material = ask_again(
        lambda: tickets.material(disk_id=journal.load().disk_id),
        pause=tickets.pause,
        clock=clock,
        wait_seconds=params["wait_seconds"],
    )
    public = material.public
    return Result(
        changed=True,
        values={
            "handle": store.put(material),
            "node_name": public.node_name,
            "role": public.role.value,
            "expires": datetime.fromtimestamp(public.expires_unix_seconds, UTC).isoformat(),
        },
    )


class MachineLock:
    """The lock of this machine; the TPM is open only during a call, so other processes can use it."""

    def __init__(self, config: NodeConfig) -> None:
        """Store the TCTI and the paths of the logs."""
        self._tcti = config.tcti
        self._paths = lock_paths(config)

    def read(self) -> LockReading:
        """Return the present reading."""
        with self._opened() as lock:
            return lock.read()

    def acquire(self, cluster_id: bytes) -> Acquisition:
        """Take the lock."""
        with self._opened() as lock:
            return lock.acquire(cluster_id)

    def measure(self, text: str) -> bool:
        """Extend the lock's register by ``text``, before the lock; return whether it was not yet extended."""
        with self._opened() as lock:
            return lock.measure(text)

    @contextmanager
    def _opened(self) -> Iterator[NodeLock]:
        with open_tpm(self._tcti) as tpm:
            yield NodeLock(tpm, paths=self._paths)


class JoinTickets:
    """Tickets of the join services that the node's configuration names."""

    def __init__(
        self,
        config: NodeConfig,
        spec: NodeSpec | None,
        *,
        store: TicketStore,
        handle: str | None,
        role: Role = Role.WORKER,
        itself: bool = False,
        keeps_closed: bool = False,
        opened: Callable[[], AbstractContextManager[Tpm]] | None = None,
    ) -> None:
        """Store the configuration and the requested ``role``.

        ``handle`` is a ticket of this boot that is used first. ``itself``: a control plane also asks its own join
        service, last. ``keeps_closed``: the secrets of a worker's ticket are opened only in the process that uses the
        disk's key. A control plane's ticket is also opened in this process, which stores its keys.

        ``opened`` opens the TPM of the machine (None: the TPM that the configuration names).
        """
        self.role = role
        self._itself = itself
        self._keeps_closed = keeps_closed
        self._config = config
        self._own = frozenset({config.name} | ({spec.node_ip} if spec else set()))
        self._store = store
        self._handle = handle
        self._favourite = Favourite()
        self._has_keys = False
        self._opened = opened or partial(open_tpm, config.tcti)
        self._backoff = Backoff(first=first_window, random=SystemRandom())

    def fetch(self, *, disk_id: str | None) -> NodeTicket:
        """Return a ticket; the ticket of a machine with a state disk contains the disk's key."""
        if self._keeps_closed and self._handle is None:
            closed = fetch_closed_ticket(*self._question(disk_id), itself=self._itself)
            plane = _of_control_plane(closed.opened()) if self.role is Role.CONTROL_PLANE else None
            return _node_ticket(closed, control_plane=plane, disk_key=closed.sealed)
        material = self.material(disk_id=disk_id)
        return _node_ticket(
            material,
            control_plane=_of_control_plane(material) if material.public.role is Role.CONTROL_PLANE else None,
            disk_key=material.secrets.disk_key if self._keeps_closed else None,
        )

    def material(self, *, disk_id: str | None) -> TicketMaterial:
        """Return the whole content of a ticket.

        Raises the refusal of the services, the channel or this machine.
        """
        if self._handle is not None:
            return self._store.load(self._handle)
        return fetch_ticket(*self._question(disk_id), itself=self._itself)

    def _question(self, disk_id: str | None) -> tuple[JoinConfig, JoinMachine]:
        """Return the request, and the machine that sends it."""
        config = self._config
        join = JoinConfig(
            endpoints=tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in config.endpoints),
            pins=JoinCaPins.from_pem(config.join_ca),
            cluster_id=config.cluster_id,
            node_name=config.name,
            disk_id=disk_id or "",
            own_addresses=self._own,
            role=self.role,
        )
        self._look_at_tpm()
        machine = JoinMachine(
            attester=OccasionalAttester(self._opened),
            read_logs=lambda: read_logs(config),
            store=self._store,
            clock=SystemClock(),
            favourite=self._favourite,
        )
        return join, machine

    def _look_at_tpm(self) -> None:
        """Load both keys once before the first request, so that a machine without them fails at once."""
        if not self._has_keys:
            with self._opened() as tpm:
                load_endorsement_key(tpm)
                load_attestation_key(tpm)
            self._has_keys = True

    def discard(self) -> None:
        """Remove the kubelet's key and every ticket."""
        self._store.discard_kubelet_key()
        for handle in self._store.handles():
            self._store.discard(handle)

    def pause(self, error: AttestedError) -> float | None:
        """Return how many seconds to wait after ``error`` (random at each call), None if a retry never helps."""
        return self._backoff.pause(error)


def _node_ticket(
    given: TicketMaterial | ClosedTicket,
    *,
    control_plane: ControlPlaneTicket | None = None,
    disk_key: DiskKey | SealedSecrets | None,
) -> NodeTicket:
    public = given.public
    return NodeTicket(
        role=public.role.value,
        disk_id=public.disk_id,
        kubernetes_version=public.kubernetes_version,
        api_endpoint=public.api_endpoint,
        cluster_ca=public.cluster_ca,
        credential=KubeletCredential(certificate=public.kubelet_certificate, key=given.kubelet_key.reveal()),
        control_plane=control_plane,
        disk_key=disk_key,
    )


def _of_control_plane(material: TicketMaterial) -> ControlPlaneTicket:
    secrets = material.secrets
    return ControlPlaneTicket(
        files={name: data.reveal() for name, data in secrets.control_plane_files.items()},
        bundle=secrets.key_service_bundle.reveal(),
        policy=secrets.policy.reveal(),
        judged=material.registers,
    )


def lock_paths(config: NodeConfig) -> NodeLockPaths:
    """Return the paths of this machine's lock and of the logs that explain its register."""
    return replace(NodeLockPaths(), firmware_log=config.logs.firmware, userspace_log=config.logs.userspace)


def read_logs(config: NodeConfig) -> EventLogs:
    """Return the logs of this boot; a missing log counts as empty, and the verifier decides about that."""
    return EventLogs(
        firmware=_content(config.logs.firmware),
        userspace=_content(config.logs.userspace),
        nodelock=_content(NodeLockPaths().log),
        command_line=_content(config.logs.command_line, limit=_COMMAND_LINE_LIMIT),
    )


def _content(path: Path, *, limit: int = _LOG_LIMIT) -> bytes:
    return read_bytes(path, limit=limit) if path.exists() else b""


def _own_disk(config: NodeConfig, machine: Machine, params: Mapping[str, Any]) -> DestroyedDisk | None:
    """Return the state disk of a machine that has an id for it, None if the disk cannot be in use."""
    settings = _disk_settings(params)
    disk_id = known_disk_id(NodeJournal(clock=machine.clock))
    if settings is None or not disk_id:
        return None
    role = Role.CONTROL_PLANE if is_control_plane(machine) else Role.WORKER
    return DestroyedDisk(settings, tcti=config.tcti, role=role, disk_id=disk_id, runner=machine.runner)


def _disk_settings(params: Mapping[str, Any]) -> DiskSettings | None:
    return DiskSettings.of(
        params.get("state_disk") or "",
        erase=params.get("state_disk_erase") or "",
        minimum_bytes=params.get("state_disk_minimum_bytes") or MINIMUM_BYTES,
    )


def _absent(config: NodeConfig, machine: Machine, params: Mapping[str, Any], *, check_mode: bool) -> Result:
    """Remove Kubernetes, then destroy the state disk, which is unused by then, then remove our own files."""
    reset = Reset(machine, cri_socket=params["cri_socket"])
    wipe = Wipe(machine.paths.root)
    disk = _own_disk(config, machine, params)
    left, keys = reset.plan(), wipe.plan()
    destroying = disk.plan() if disk else ()
    warnings: tuple[str, ...] = ()
    if not check_mode:
        if left:
            warnings = reset.apply(left)
        if disk and destroying:
            disk.apply()
        wipe.apply(keys)
    names = [*(str(path) for path in left.paths), *(str(path) for path in keys)]
    names += [disk.device.removeprefix("/")] if disk and destroying else []
    return Result(
        changed=bool(left or keys or destroying),
        values={
            "planned": names,
            "steps": [],
            "phase": NodePhase.FRESH.value,
            "reboot_required": machine.paths.lock_marker.exists(),
        },
        diff=Diff(before="".join(f"/{name}\n" for name in names), after=""),
        warnings=warnings,
    )
