# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first control plane: ``kubeadm init``, phase by phase, without a bootstrap token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..system import SystemRandom
from .api import Health, LocalHealth, wait_ready
from .encryption import make_encryption, observe_encryption, plan_encryption
from .files import write_api_server_files
from .operation import Machine, Operation
from .phases import INIT_PHASES, Doer, Phase
from .pins import pinned, write_patches
from .render import ignored_checks, render_init

if TYPE_CHECKING:
    from ..result import Step
    from ..system import Random
    from .plan import Plan
    from .spec import ClusterSpec, NodeSpec


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
        """Render the configuration; raises KUBEADM_OPTION_INVALID and IMAGE_PINS_MALFORMED."""
        self._machine = machine
        self._pods = cluster.pod_security
        self._random = random or SystemRandom()
        self._health = health or LocalHealth(ca=machine.paths.ca, address=node.node_ip)
        self._operation = Operation(
            machine,
            name="init",
            table=_phases(cluster),
            config=render_init(cluster, pinned(node, machine.paths), paths=machine.paths),
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
            write_api_server_files(self._machine.paths, self._pods)
            write_patches(self._machine.paths)
            make_encryption(self._machine.paths, random=self._random)
        steps = self._operation.apply(todo, until=until)
        left = self._operation.plan()
        if todo and not left:
            self.wait_ready()
        return InitOutcome(steps=steps, complete=not left.phases)

    def wait_ready(self) -> None:
        """Wait until the API server of this machine says that it is ready; raises API_UNREACHABLE."""
        wait_ready(self._health, clock=self._machine.clock)


def _phases(cluster: ClusterSpec) -> tuple[Phase, ...]:
    """Return the phases of this cluster; one without kube-proxy goes through its phase and does nothing in it.

    kubeadm's own phase, run alone, installs it whatever its configuration says.
    """
    if cluster.kube_proxy:
        return INIT_PHASES
    return tuple(
        replace(one, title="Leave out kube-proxy", doer=Doer.LEFTOVERS) if one.name == "kube-proxy" else one
        for one in INIT_PHASES
    )
