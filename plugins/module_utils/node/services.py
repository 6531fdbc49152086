# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installs key and join service on a machine that has joined as a control plane, by a playbook on that machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.files import write_atomic
from ..kubeadm.operation import MEMBER_OPERATION
from .journal import NodePhase
from .playbook import PlaybookOrder

if TYPE_CHECKING:
    from ..kubeadm.operation import Machine
    from .init_machine import PlaybookSettings
    from .journal import NodeJournal
    from .playbook import Listener, Playbooks

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
