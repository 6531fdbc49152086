# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first control plane: ``kubeadm init``, phase by phase, without a bootstrap token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import KubeadmError
from ..reasons import Reason
from ..system import SystemRandom, write_atomic
from .api import Health, LocalHealth
from .encryption import make_encryption, observe_encryption, plan_encryption
from .operation import Machine, Operation, Step
from .phases import INIT_PHASES
from .render import api_server_files, ignored_checks, render_init

if TYPE_CHECKING:
    from ..system import Random
    from .plan import Plan
    from .spec import ClusterSpec, NodeSpec

READY_TIMEOUT_SECONDS = 240.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOutcome:
    """What was done, and whether the control plane is complete now."""

    steps: tuple[Step, ...]
    complete: bool


class ControlPlane:
    """One machine that is (or becomes) the first control plane."""

    def __init__(
        self,
        cluster: ClusterSpec,
        node: NodeSpec,
        machine: Machine,
        *,
        health: Health | None = None,
        random: Random | None = None,
    ) -> None:
        """Render the configuration; raises KUBEADM_OPTION_INVALID."""
        self._machine = machine
        self._random = random or SystemRandom()
        self._health = health or LocalHealth(ca=machine.paths.ca, address=node.node_ip)
        self._operation = Operation(
            machine,
            name="init",
            table=INIT_PHASES,
            config=render_init(cluster, node, paths=machine.paths),
            ignored=ignored_checks(node),
            wait_ready=self.wait_ready,
        )

    def plan(self) -> Plan:
        """Return what is to do; raises also ENCRYPTION_MALFORMED and ENCRYPTION_KEY_LOST."""
        plan_encryption(observe_encryption(self._machine.paths))
        return self._operation.plan()

    @property
    def is_in_clear(self) -> bool:
        """Say whether the running API server was never told to encrypt Secrets: its cluster was made before that."""
        return observe_encryption(self._machine.paths).is_in_clear

    def apply(self, todo: Plan, *, until: str | None = None) -> InitOutcome:
        """Perform ``todo`` up to phase ``until``; at the end the API server is waited for."""
        if todo.phases:
            self._operation.require_lock()
            self._write_api_server_files()
        steps = self._operation.apply(todo, until=until)
        left = self._operation.plan()
        if todo and not left:
            self.wait_ready()
        return InitOutcome(steps=steps, complete=not left.phases)

    def wait_ready(self) -> None:
        """Wait until the API server of this machine says that it is ready; raises API_UNREACHABLE."""
        clock = self._machine.clock
        deadline = clock.monotonic() + READY_TIMEOUT_SECONDS
        while not self._health.is_ready():
            if clock.monotonic() > deadline:
                raise KubeadmError(
                    f"expected the API server to be ready within {READY_TIMEOUT_SECONDS:g} s",
                    reason=Reason.API_UNREACHABLE,
                )
            clock.sleep(_POLL_SECONDS)

    def _write_api_server_files(self) -> None:
        for name, content in api_server_files(self._machine.paths).items():
            path = Path(name)
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomic(path, content, mode=0o644)
        make_encryption(self._machine.paths, random=self._random)
