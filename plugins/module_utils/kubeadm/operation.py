# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Performing a plan: phase by phase, each written down when it is done."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import KubeadmError
from ..reasons import Reason
from ..result import Step
from ..system import make_directory, remove, write_atomic
from .credential import adopt_embedded
from .gateway import Kubeadm, KubeletUnit
from .journal import Journal, Progress
from .phases import Doer, Phase
from .plan import Observed, Plan, plan, witnesses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ..system import Clock, Runner
    from .spec import KubernetesPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The outside of an operation, passed in: programs, clock, and where files lie."""

    runner: Runner
    clock: Clock
    paths: KubernetesPaths

    @property
    def kubelet(self) -> KubeletUnit:
        """The kubelet's unit."""
        return KubeletUnit(self.runner, clock=self.clock)

    @property
    def journal(self) -> Journal:
        """What has been done."""
        return Journal(self.paths.state)


def _nothing_to_wait_for() -> None:
    """Return at once: a node that joins finds a running API server."""


class Operation:
    """``kubeadm init`` or ``kubeadm join`` as phases: plan, then apply; a run after a kill goes on."""

    def __init__(
        self,
        machine: Machine,
        *,
        name: str,
        table: Sequence[Phase],
        config: bytes,
        ignored: Sequence[str],
        verb: str | None = None,
        wait_ready: Callable[[], None] = _nothing_to_wait_for,
    ) -> None:
        """Keep the table of phases, the rendered configuration, and how to wait for the API server.

        ``verb`` is kubeadm's own word for the operation, where ``name``, which tells the roles apart, is none.
        """
        self._machine = machine
        self._name = name
        self._verb = verb or name
        self._table = tuple(table)
        self._config = config
        self._ignored = tuple(ignored)
        self._wait_ready = wait_ready

    @property
    def config_sha256(self) -> str:
        """SHA-256 (hex) of the configuration."""
        return hashlib.sha256(self._config).hexdigest()

    def plan(self) -> Plan:
        """Look at the machine and return what is to do; raises KUBEADM_JOURNAL_MALFORMED, KUBEADM_OTHER_ROLE."""
        progress = self._machine.journal.load()
        if progress is not None and progress.operation != self._name:
            raise KubeadmError(
                f"expected a machine for {self._name}, it has been through {progress.operation}",
                reason=Reason.KUBEADM_OTHER_ROLE,
            )
        root = self._machine.paths.root
        found = frozenset(path for path in witnesses(self._table) if (root / path).exists())
        observed = Observed(progress=progress, files=found, kubelet_active=self._machine.kubelet.is_active())
        return plan(self._table, observed, config_sha256=self.config_sha256)

    def apply(self, todo: Plan, *, until: str | None = None) -> tuple[Step, ...]:
        """Perform ``todo`` (up to and with phase ``until``); the lock must be held (NODELOCK_NOT_HELD)."""
        self._require_known(until)
        if not todo:
            return ()
        self.require_lock()
        self.prepare()
        steps = [self._start_kubelet()] if todo.start_kubelet else []
        return (*steps, *(self._perform(phase) for phase in todo.up_to(until)))

    def prepare(self) -> None:
        """Write the configuration and enable the kubelet (kubeadm only starts it)."""
        state = self._machine.paths.state
        make_directory(state, mode=0o700)
        write_atomic(self._config_path(), self._config)
        self._machine.kubelet.enable()

    def _start_kubelet(self) -> Step:
        return self._timed("kubelet", "Start the kubelet", self._machine.kubelet.start)

    def _perform(self, phase: Phase) -> Step:
        step = self._timed(phase.name, phase.title, lambda: self._do(phase))
        journal = self._machine.journal
        progress = journal.load()
        if progress is None or progress.config_sha256 != self.config_sha256:
            progress = Progress(operation=self._name, config_sha256=self.config_sha256, done=_kept(progress))
        journal.save(progress.with_done(phase.name))
        return step

    def _do(self, phase: Phase) -> None:
        if phase.doer is Doer.KUBEADM:
            self._kubeadm().run(phase)
        elif phase.doer is Doer.CREDENTIAL:
            adopt_embedded(self._machine.paths, clock=self._machine.clock)
        elif phase.doer is Doer.READINESS:
            self._wait_ready()
        else:
            for path in phase.absent:
                remove(self._machine.paths.root / path)

    def _kubeadm(self) -> Kubeadm:
        return Kubeadm(self._machine.runner, operation=self._verb, config=self._config_path(), ignored=self._ignored)

    def _timed(self, name: str, title: str, action: Callable[[], None]) -> Step:
        begun = self._machine.clock.monotonic()
        action()
        return Step(name=name, title=title, seconds=self._machine.clock.monotonic() - begun)

    def _require_known(self, until: str | None) -> None:
        order = [phase.name for phase in self._table]
        if until is not None and until not in order:
            raise KubeadmError(
                f"expected one of {', '.join(order)}, got {until!r}", reason=Reason.KUBEADM_OPTION_INVALID
            )

    def require_lock(self) -> None:
        """Raise NODELOCK_NOT_HELD unless the machine is locked to its cluster."""
        if not self._machine.paths.lock_marker.exists():
            raise KubeadmError(
                "expected a machine that is locked to its cluster, it is not", reason=Reason.NODELOCK_NOT_HELD
            )

    def _config_path(self) -> Path:
        return self._machine.paths.state / f"{self._name}.yaml"


def _kept(progress: Progress | None) -> tuple[str, ...]:
    """Return what stays done under a changed configuration: only the check that the machine was fit."""
    return tuple(name for name in progress.done if name == "preflight") if progress else ()
