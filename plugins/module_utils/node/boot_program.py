# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent bootstrapper`: the program that a boot unit starts, with the real TPM, join services and kubeadm.

It runs as root and has no network listener; the separate `attested-init-service` listens at port 9000. The exit code is
0 once the machine is a node (or after SIGTERM), 1 if another start may succeed, 78 if a person is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import pwd
import signal
import sys
import threading
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.host import SystemClock, SystemRandom
from ..core.logs import open_log
from ..core.runtime import Notifier, load_config, wait_for_stop
from ..disk.paths import StatePaths
from ..disk.state_disk import wipe_progress
from ..errors import AttestedError, SystemFault
from ..keyservice.audit_log import AuditPlace, AuditTrail
from ..keyservice.derive import DiskId
from ..keyservice.wrap import KeyStore
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths, NodeSpec
from ..policy.identity import Role
from ..reasons import Reason
from ..services.init_handler import Desk
from ..services.machine_socket import INIT_SOCKET, init_service
from ..services.recovery_handler import Contest, HelperTrial, Locked, RecoveryDesk, Unlocking
from ..services.ticket_store import TicketStore
from ..tpm.client import open_tpm
from ..transport.pins import JoinCaPins
from ..transport.unix_rpc import SocketServer
from .bootstrapper import PERSON_NEEDED, Bootstrapper, Membership, log_step, read_membership
from .claim import ClaimFile, Race
from .client import JoinTickets, MachineLock, lock_paths, make_parts
from .config import DEFAULT_PATH, load_node_config
from .init_machine import MachineFounder, TpmKeeping
from .journal import NodeJournal
from .member import MemberKeys
from .playbook import MemberServices, PlaybookSettings, RunnerPlaybooks, TaskLog
from .recovery import ContestedDisk, RecoveredNode, Recovery, SocketRecoveryListener
from .state_disk import MINIMUM_BYTES, DiskSettings, FoundingDisk, MachineDisk, settle_founder
from .witness_service import attester_of, facts_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from ..core.command import Runner
    from ..core.logs import Log
    from ..services.init_handler import Founder
    from .config import NodeConfig
    from .journal import NodePhase, NodeState
    from .order import Parts

CONFIG = "/etc/attested/bootstrapper.yml"
INIT_UNIT = "attested-init-service.service"
RECOVERY_AUDIT = Path("/var/lib/attested/recovery-audit")
PLAYBOOKS = Path(__file__).parents[3] / "playbooks"

_TPM_SECONDS = 60.0
_EX_CONFIG = 78
"""EX_CONFIG of sysexits.h; systemd does not restart the unit after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapperConfig:
    """The configuration file, written by the role `bootstrapper`.

    ``role`` is the requested role (the key service knows the registered one); ``serve_init``: an admin may make a
    cluster on this machine; ``init_user`` is the user of the init service; ``inventory`` is the inventory of the
    playbooks. ``second_node_ip``, ``api_proxy``: as in `NodeSpec`.
    ``state_disk``, ``_erase``, ``_minimum_bytes``: as in `DiskSettings.of`. ``recovery_after_seconds``: how long a
    rebooted node with a disk asks for a ticket before an admin may also recover it. ``recovery_user`` is the user of
    the recovery service.
    """

    node_ip: str
    second_node_ip: str = ""
    role: Role = Role.WORKER
    ignore_preflight_errors: tuple[str, ...] = ()
    allow_cgroup_v1: bool = False
    api_proxy: str = ""
    serve_init: bool = False
    init_user: str = "attested-init"
    inventory: Path = Path("/etc/attested/bootstrap/inventory.yml")
    state_disk: str = ""
    state_disk_erase: str = ""
    state_disk_minimum_bytes: int = MINIMUM_BYTES
    recovery_after_seconds: float = 300.0
    recovery_user: str = "attested-recovery"


class LoggedJournal(NodeJournal):
    """The journal of the node; each entry is also written to the log."""

    def __init__(self, *, clock: SystemClock, log: Log) -> None:
        """Write to the default file and to ``log``."""
        super().__init__(clock=clock)
        self._log = log

    def enter(
        self, phase: NodePhase, *, disk_id: str | None = None, kubernetes_version: str | None = None
    ) -> NodeState:
        """Enter ``phase``."""
        self._log.event("phase", phase=phase.value)
        return super().enter(phase, disk_id=disk_id, kubernetes_version=kubernetes_version)

    def fail(self, error: AttestedError, *, next_try_seconds: float | None = None) -> NodeState:
        """Record why the phase does not end."""
        wait = {} if next_try_seconds is None else {"next_try_seconds": round(next_try_seconds, 1)}
        self._log.event("waiting" if wait else "failed", reason=error.code, message=error.message, **wait)
        return super().fail(error, next_try_seconds=next_try_seconds)


class SocketInitListener:
    """Runs the desk of init at its socket, and starts the network service.

    systemd stops that service together with this program.
    """

    def __init__(
        self,
        node: NodeConfig,
        config: BootstrapperConfig,
        *,
        node_config: str,
        log: Log,
        socket: str | Path = INIT_SOCKET,
        runner: Runner | None = None,
    ) -> None:
        """Serve the machine of ``node`` at ``socket``."""
        self._node = node
        self._config = config
        self._node_config = node_config
        self._log = log
        self._socket = Path(socket)
        self._runner = runner or SystemRunner()

    @asynccontextmanager
    async def opened(self, founder: Founder) -> AsyncIterator[None]:
        """Pass init requests to ``founder``; raises FILE_UNUSABLE, CONFIG_INVALID, COMMAND_FAILED."""
        service = init_service(self._desk(founder), log=self._log)
        caller = _user(self._config.init_user)
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
            await asyncio.to_thread(self._runner.run, ["systemctl", "start", "--no-block", INIT_UNIT])
            yield
        finally:
            await server.stop()
            service.close()

    def _desk(self, founder: Founder) -> Desk:
        return Desk(
            attester=partial(attester_of, self._node_config),
            facts=partial(facts_of, self._node_config),
            pins=JoinCaPins.from_pem(self._node.join_ca),
            founder=founder,
            clock=SystemClock(),
            random=SystemRandom(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One start of the program."""

    config: BootstrapperConfig
    node: NodeConfig
    node_config: str
    log: Log
    stopping: threading.Event

    def bootstrapper(self) -> Bootstrapper:
        """Return the bootstrapper; before, record an init that has ended in the node's journal."""
        claims, disk, contest = ClaimFile(), disk_of(self.config), Contest()
        parts = self._parts(disk, contest)
        settle_founder(parts.machine, parts.journal)
        race = Race(
            MachineLock(self.node),
            cluster_id=self.node.cluster_id,
            claims=claims,
            initialising=lambda: read_membership(parts.machine, parts.journal) is Membership.INITIALISING,
        )
        return Bootstrapper(
            parts,
            race=race,
            claims=claims,
            founder=partial(self._founder, race, parts, disk),
            listener=SocketInitListener(self.node, self.config, node_config=self.node_config, log=self.log),
            serve_init=self.config.serve_init,
            log=self.log,
            services=self._services(parts) if self.config.role is Role.CONTROL_PLANE else None,
            recovery=None if disk is None else self._recovery(disk, contest),
        )

    def _parts(self, disk: DiskSettings | None, contest: Contest) -> Parts:
        machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
        spec = NodeSpec(
            name=self.node.name,
            node_ip=self.config.node_ip,
            second_node_ip=self.config.second_node_ip,
            ignore_preflight_errors=self.config.ignore_preflight_errors,
            allow_cgroup_v1=self.config.allow_cgroup_v1,
            api_proxy=self.config.api_proxy,
        )
        parts = make_parts(
            self.node,
            spec,
            machine,
            tickets=JoinTickets(
                self.node, spec, store=TicketStore(), handle=None, role=self.config.role, keeps_closed=disk is not None
            ),
            journal=LoggedJournal(clock=SystemClock(), log=self.log),
            disk=disk,
        )
        return parts if parts.disk is None else replace(parts, disk=ContestedDisk(parts.disk, contest))

    def _recovery(self, disk: DiskSettings, contest: Contest) -> Recovery:
        listener = SocketRecoveryListener(
            partial(self._recovery_desk, disk, contest),
            user=partial(_user, self.config.recovery_user, whose="recovery"),
            log=self.log,
        )
        return Recovery(contest=contest, listener=listener, after_seconds=self.config.recovery_after_seconds)

    @contextmanager
    def _recovery_desk(self, disk: DiskSettings, contest: Contest) -> Iterator[RecoveryDesk]:
        disk_id = NodeJournal(clock=SystemClock()).load().disk_id or ""
        cluster_id = self.node.cluster_id
        trial = HelperTrial(Locked(device=disk.device, disk=DiskId(disk_id), cluster_id=cluster_id))
        opener = RecoveredNode(
            disk=self._machine_disk(disk),
            disk_id=disk_id,
            lock=MachineLock(self.node),
            cluster_id=cluster_id,
            keys=self._keys() if self.config.role is Role.CONTROL_PLANE else None,
        )
        place = AuditPlace(directory=RECOVERY_AUDIT)
        record = AuditTrail(place, node=self.node.name, clock=SystemClock(), random=SystemRandom())
        with closing(record):
            yield self._desk_of(Unlocking(trial, opener, contest), record)

    def _desk_of(self, unlocking: Unlocking, record: AuditTrail) -> RecoveryDesk:
        return RecoveryDesk(
            attester=partial(attester_of, self.node_config),
            facts=partial(facts_of, self.node_config),
            pins=JoinCaPins.from_pem(self.node.join_ca),
            unlocking=unlocking,
            record=record,
            clock=SystemClock(),
        )

    def _machine_disk(self, disk: DiskSettings) -> MachineDisk:
        return MachineDisk(disk, tcti=self.node.tcti, role=self.config.role)

    def _keys(self) -> MemberKeys:
        return MemberKeys(self.node, lock_paths=lock_paths(self.node), on_disk=True)

    def _playbook_settings(self, playbook: str) -> PlaybookSettings:
        return PlaybookSettings(
            playbook=PLAYBOOKS / playbook, inventory=self.config.inventory, node_name=self.node.name
        )

    def _playbooks(self) -> RunnerPlaybooks:
        return RunnerPlaybooks(canceled=self.stopping.is_set, ended=partial(log_step, self.log))

    def _services(self, parts: Parts) -> MemberServices:
        return MemberServices(
            self._playbook_settings("machine_member.yml"),
            machine=parts.machine,
            journal=parts.journal,
            playbooks=self._playbooks(),
            listener=TaskLog(self.log),
        )

    def _founder(self, race: Race, parts: Parts, disk: DiskSettings | None, stop_others: Callable[[], None]) -> Founder:
        open_machine = partial(open_tpm, self.node.tcti, timeout_seconds=_TPM_SECONDS)
        founding = None
        if disk is not None:
            founding = FoundingDisk(
                self._machine_disk(disk),
                machine=parts.machine,
                journal=parts.journal,
                random=SystemRandom(),
                progress=partial(wipe_progress, StatePaths()),
            )
        return MachineFounder(
            self._playbook_settings("machine_init.yml"),
            race=race,
            keeping=TpmKeeping(KeyStore(), open_machine=open_machine, on_disk=disk is not None),
            playbooks=self._playbooks(),
            stop_others=stop_others,
            disk=founding,
        )


def disk_of(config: BootstrapperConfig) -> DiskSettings | None:
    """Return the settings of this machine's state disk, None if it has none; raises STATE_DISK_OPTION."""
    return DiskSettings.of(
        config.state_disk, erase=config.state_disk_erase, minimum_bytes=config.state_disk_minimum_bytes
    )


async def run(boot: Boot) -> None:
    """Run until this machine is a node or SIGTERM arrives; SIGHUP ends a pause between attempts.

    Raises what failed.
    """
    bootstrapper = boot.bootstrapper()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, bootstrapper.ask_now)
    action = await asyncio.to_thread(bootstrapper.next_action)
    Notifier().ready(action.value)
    running = asyncio.create_task(bootstrapper.run(action))
    stopped = asyncio.create_task(wait_for_stop())
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        stopped.cancel()
        await running
        return
    boot.log.event("stopping", signal=stopped.result())
    boot.stopping.set()
    bootstrapper.stop_asking()
    running.cancel()
    with suppress(asyncio.CancelledError, AttestedError):
        await running


def exit_code(error: AttestedError) -> int:
    """Return 78 if only a person can help, else 1: the next start reads the machine's state again."""
    return _EX_CONFIG if error.reason in PERSON_NEEDED else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code, the error on standard error."""
    options = _parser().parse_args(argv)
    log = open_log()
    try:
        boot = Boot(
            config=load_config(BootstrapperConfig, options.config),
            node=load_node_config(options.node_config),
            node_config=options.node_config,
            log=log,
            stopping=threading.Event(),
        )
        asyncio.run(run(boot))
    except AttestedError as error:
        sys.stderr.write(f"attested-agent bootstrapper: {error}\n")
        return exit_code(error)
    return 0


def _user(name: str, *, whose: str = "init") -> Any:
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise SystemFault(
            f"expected the user {name} of the {whose} service, found none", reason=Reason.CONFIG_INVALID
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attested-agent bootstrapper",
        description="Make a node of this machine: by an admin's init, or by joining.",
    )
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--node-config", default=DEFAULT_PATH, metavar="FILE", help="node.yml (default: %(default)s)")
    return parser
