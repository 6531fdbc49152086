# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine that made its cluster, after a reset: nothing is made anew, its kubelet runs again.

All that kubeadm made lies on its state disk (docs/adr/0048). What others decided meanwhile comes with the ticket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..result import Step
from .api import Health, KubeconfigNodeReader, LocalHealth, NodeReader, NodeView, wait_ready
from .files import place_shared_files, require_shared_files
from .node import JoinMaterial, place_credential, see_node
from .plan import Plan

if TYPE_CHECKING:
    from pathlib import Path

    from .operation import Machine
    from .spec import NodeSpec


class ReturningFounder:
    """One machine whose init has come to its end."""

    def __init__(
        self, node: NodeSpec, machine: Machine, *, reader: NodeReader | None = None, health: Health | None = None
    ) -> None:
        """Keep the collaborators."""
        self._node = node
        self._machine = machine
        self._reader = reader or KubeconfigNodeReader(machine.paths.kubelet_config)
        self._health = health or LocalHealth(ca=machine.paths.ca, address=node.node_ip)

    def plan(self) -> Plan:
        """Return what is to do: the kubelet's start at most."""
        return Plan(table=(), start_kubelet=not self._machine.kubelet.is_active())

    def write(self, material: JoinMaterial) -> bool:
        """Write the shared files and the credential of a ticket; return whether anything changed.

        Raises TICKET_MALFORMED, ENCRYPTION_MALFORMED and KUBELET_CREDENTIAL_INVALID before anything is written, and
        FILE_UNUSABLE.
        """
        require_shared_files(material.control_plane_files)
        changed = place_credential(material, self._node, self._machine)
        return place_shared_files(material.control_plane_files, self._machine.paths) or changed

    def apply(self, todo: Plan) -> tuple[Step, ...]:
        """Start the kubelet where it does not run; it is complete once the API server of this machine answers."""
        if not todo:
            return ()
        clock = self._machine.clock
        begun = clock.monotonic()
        self._machine.kubelet.start()
        wait_ready(self._health, clock=clock)
        return (Step(name="kubelet", title="Start the kubelet", seconds=clock.monotonic() - begun),)

    def confirm(self, *, boot_id: Path) -> NodeView:
        """Wait until the own API server knows the Node of this boot; raises NODE_NOT_REGISTERED."""
        return see_node(self._reader, self._node, self._machine, boot_id=boot_id)
