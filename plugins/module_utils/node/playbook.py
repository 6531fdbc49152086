# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a playbook on this machine by ansible-runner, reports each task when it begins, and returns the result.

The runner writes only into one private directory, which must be on tmpfs and is removed when the run ends. Variables
reach Ansible as a file in this directory, never in argv. They hold no secrets anyway.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .._deps.runner import ansible_runner
from ..core.files import make_directory, require_tmpfs, write_atomic
from ..errors import SystemFault
from ..kubeadm.operation import MEMBER_OPERATION
from ..reasons import Reason
from .journal import NodePhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..core.logs import Log
    from ..kubeadm.operation import Machine
    from .journal import NodeJournal

    StepCallback = Callable[[str, float], None]


DIRECTORY = Path("/run/attested/playbooks")

_PLAY = "playbook_on_play_start"
_TASKS = frozenset({"playbook_on_task_start", "playbook_on_handler_task_start"})
_FAILED = frozenset({"runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"})
_STATS = "playbook_on_stats"
_NO_HOST = "playbook_on_no_hosts_matched"
_DONE = "runner_on_ok"
_RAN = "runner_on_start"
_UNNAMED = "(unnamed)"
_UNREPORTED = frozenset({"validate_argument_spec", "ansible.builtin.validate_argument_spec"})
"""Actions of tasks that Ansible adds to each role."""


class Listener(Protocol):
    """Receives the progress of a run (`services.init_handler`)."""

    def step(self, stage: str, task: str) -> None:
        """Receive the start of a task."""

    def line(self, text: str) -> None:
        """Receive a line of output."""


class TaskLog:
    """Logs the start of each task, but no output of tasks, which may contain a secret."""

    def __init__(self, log: Log) -> None:
        """Write to ``log``."""
        self._log = log

    def step(self, stage: str, task: str) -> None:
        """Log the start of a task."""
        self._log.event("task", stage=stage, task=task)

    def line(self, text: str) -> None:
        """Drop a line of output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookSettings:
    """A playbook with its inventory, the name of this node, and a directory for temporary files."""

    playbook: Path
    inventory: Path
    node_name: str
    directory: Path = Path("/run/attested")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookOrder:
    """A playbook run: absolute path of the playbook, inventory file, variables (plain data, no secrets).

    ``limit`` selects one host if the inventory has more; ``machine`` is a second inventory with that host.
    """

    playbook: Path
    inventory: Path
    limit: str | None = None
    machine: Path | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


class Playbooks(Protocol):
    """Runs playbooks (`RunnerPlaybooks`)."""

    def run(self, order: PlaybookOrder, listener: Listener) -> Mapping[str, Any]:
        """Run ``order`` and return the data of its ``set_stats``; raises the reason of the module that failed."""


@dataclass(slots=True)
class _RunEvents:
    """Collects the events of a run."""

    listener: Listener
    ended: StepCallback
    stage: str = ""
    ran: bool = False
    failed: Mapping[str, Any] | None = None
    result: Mapping[str, Any] = field(default_factory=dict)

    def handle(self, event: Mapping[str, Any]) -> bool:
        """Process one event; False lets the runner write the event to no file."""
        name, data = str(event.get("event", "")), event.get("event_data") or {}
        if name == _PLAY:
            self.stage = str(data.get("name") or _UNNAMED)
        elif name in _TASKS and data.get("task_action") not in _UNREPORTED:
            self.listener.step(self.stage, str(data.get("task") or _UNNAMED))
        elif name == _STATS:
            self.result = data.get("artifact_data") or {}
        elif name in _FAILED and not data.get("ignore_errors"):
            self.failed = data.get("res") or {}
        elif name == _DONE:
            for step, seconds in _steps(data.get("res")):
                self.ended(step, seconds)
        self.ran = self.ran or name == _RAN
        for line in str(event.get("stdout") or "").splitlines():
            self.listener.line(line)
        return False

    def require_success(self, status: str, code: int | None) -> None:
        """Raise unless the run succeeded on a host.

        ``code`` is ansible-playbook's exit code, None after a signal.
        """
        if self.failed is not None or status != "successful":
            how = "stopped by a signal" if code is None else f"exit code {code}"
            raise _failure(self.failed or {}, f"{status} ({how})")
        if not self.ran:
            raise SystemFault("expected a play that matches this machine, none did", reason=Reason.PLAYBOOK_NO_HOST)


def _ignore(_name: str, _seconds: float) -> None:
    """Ignore a step."""


class RunnerPlaybooks:
    """Runs playbooks by ansible-runner, with the ansible-playbook next to this interpreter."""

    def __init__(
        self,
        directory: Path = DIRECTORY,
        *,
        require_memory: Callable[[Path], object] = require_tmpfs,
        canceled: Callable[[], bool] | None = None,
        ended: StepCallback = _ignore,
    ) -> None:
        """Store the private directory; ``require_memory`` raises unless it is on tmpfs.

        ``canceled`` returns True to stop a run. ``ended`` receives name and seconds of each step in the result of a
        module.
        """
        self._directory = directory
        self._require_memory = require_memory
        self._canceled = canceled
        self._ended = ended

    def run(self, order: PlaybookOrder, listener: Listener) -> Mapping[str, Any]:
        """Run ``order``.

        Raises PLAYBOOK_FAILED (or the reason of the failed module of this collection), PLAYBOOK_NO_HOST, NOT_TMPFS,
        DEPENDENCY_MISSING.
        """
        make_directory(self._directory, mode=0o700)
        self._require_memory(self._directory)
        events = _RunEvents(listener, self._ended)
        gc.collect()  # the runner forks, and a gRPC channel that is collected in the child waits for a missing thread
        with tempfile.TemporaryDirectory(prefix="run-", dir=self._directory) as private:
            ended = ansible_runner().run(
                private_data_dir=private,
                playbook=str(order.playbook),
                inventory=[str(path) for path in (order.inventory, order.machine) if path],
                extravars=dict(order.variables),
                limit=order.limit,
                envvars=_environment(private),
                event_handler=events.handle,
                cancel_callback=self._canceled,
                quiet=True,
            )
            status, code = str(ended.status), ended.rc
        events.require_success(status, code)
        return events.result


def _environment(private: str) -> dict[str, str]:
    """Return the environment of a run, whatever the caller's is; programs next to this interpreter come first.

    Ansible's own files stay in the ``private`` directory, so no home directory is written. The arguments of a module
    are not written to syslog. They reach the module by pipelining, without a temporary file.
    """
    return {
        "ANSIBLE_HOME": f"{private}/home",
        "ANSIBLE_LOCAL_TEMP": f"{private}/here",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_NO_TARGET_SYSLOG": "1",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_REMOTE_TEMP": f"{private}/there",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
    }


def _steps(result: object) -> Iterator[tuple[str, float]]:
    """Return the steps (`result.Step`) in the result of a module of this collection, none for other results."""
    steps = result.get("steps") if isinstance(result, dict) else None
    for one in steps if isinstance(steps, list) else ():
        if isinstance(one, dict) and isinstance(one.get("seconds"), int | float):
            yield str(one.get("name")), float(one["seconds"])


def _failure(result: Mapping[str, Any], how: str) -> SystemFault:
    known = Reason.__members__.get(str(result.get("reason")), Reason.PLAYBOOK_FAILED)
    message = str(result.get("msg") or f"expected the playbook to succeed, it ended as {how}")
    hint = str(result["hint"]) if result.get("hint") else None
    return SystemFault(message, reason=known, hint=hint)


# Installs key and join service on a machine that has joined as a control plane, by a playbook on that machine.

MARKER = Path("/var/lib/attested/services")
"""Exists once the playbook has succeeded; a reset of the node removes it."""


UNITS = ("attested-unlock.service", "attested-key-service.service", "attested-join-service.service")
"""The units that wait for the keys at the boot of a control plane, in the order of their start."""


class Services(Protocol):
    """The services that a control plane runs for other machines."""

    def missing(self) -> bool:
        """Return whether this machine should run the services and does not yet."""

    def install(self) -> None:
        """Install the services; raises the reason of the playbook."""

    def resume(self) -> None:
        """Start the units that systemd skipped at the boot because the state disk was closed."""


class MemberServices:
    """The services of a further control plane; a repetition after a kill or a failure completes them."""

    def __init__(
        self,
        settings: PlaybookSettings,
        *,
        machine: Machine,
        journal: NodeJournal,
        playbooks: Playbooks,
        listener: Listener,
        marker: Path = MARKER,
        units: Path = Path("/etc/systemd/system"),
    ) -> None:
        """Run the playbook of ``settings`` on ``machine``; ``listener`` receives its tasks.

        ``units`` is the directory of the services' units.
        """
        self._settings = settings
        self._machine = machine
        self._journal = journal
        self._playbooks = playbooks
        self._listener = listener
        self._marker = marker
        self._units = units

    def missing(self) -> bool:
        """Return whether this machine joined as a control plane and lacks the services.

        A founder has the services from its init.
        """
        progress = self._machine.journal.load()
        member = progress is not None and progress.operation == MEMBER_OPERATION
        return member and self._journal.load().phase is NodePhase.JOINED and not self._marker.exists()

    def install(self) -> None:
        """Run the playbook; raises PLAYBOOK_FAILED or the reason of the module that failed, and FILE_UNUSABLE."""
        variables = {"attested_node_name": self._settings.node_name}
        self._playbooks.run(
            PlaybookOrder(playbook=self._settings.playbook, inventory=self._settings.inventory, variables=variables),
            self._listener,
        )
        write_atomic(self._marker, b"")

    def resume(self) -> None:
        """Start the installed units; systemd restarts a unit that fails."""
        installed = [unit for unit in UNITS if (self._units / unit).exists()]
        if installed:
            self._machine.runner.run(["systemctl", "start", "--no-block", *installed], check=False)
