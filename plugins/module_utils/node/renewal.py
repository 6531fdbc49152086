# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's client certificate, renewed by its own machine with fresh evidence (ADR 0024).

    due? → ticket for a new key → check → call the API with the new pair → replace the kubelet's pair

Until the last step the kubelet keeps its present pair, so a failure or a kill before it costs only an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.files import make_directory, remove, write_atomic
from ..errors import KubeadmError
from ..kubeadm.api import KubeconfigNodeReader
from ..kubeadm.credential import place, require_pair, validity, validity_of
from ..reasons import Reason
from .retry import ask_again

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..errors import AttestedError
    from ..kubeadm.api import NodeReader
    from ..kubeadm.credential import KubeletCredential, Validity
    from ..kubeadm.operation import Machine
    from .journal import NodeJournal
    from .order import NodeTicket, TicketSource

ASK_SECONDS = 120.0
CONFIRM_SECONDS = 30.0
_CONFIRM_PAUSE_SECONDS = 2.0
_CANDIDATE = "candidate.pem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """The kubelet's present validity, and whether this run changed it."""

    validity: Validity
    changed: bool


class Renewal:
    """Renews one machine's certificate; the caller runs one at a time.

    The playbook `node` uses another ticket store.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        *,
        tickets: TicketSource,
        journal: NodeJournal,
        directory: Path,
        reader: Callable[[Path], NodeReader] | None = None,
    ) -> None:
        """Renew for node ``name``; ``directory`` is on tmpfs, belongs to root, and is used by no other run.

        ``reader`` reads Nodes with a PEM file (None: by the kubelet's kubeconfig, with that file instead of its own).
        """
        self._name = name
        self._machine = machine
        self._tickets = tickets
        self._journal = journal
        self._directory = directory
        self._reader = reader or (
            lambda credential: KubeconfigNodeReader(machine.paths.kubelet_config, credential=credential)
        )

    def run(
        self, *, at_once: bool = False, shorter: bool = False, trust: Callable[[bytes], object] | None = None
    ) -> Renewed:
        """Renew if the certificate is due, or ``at_once``.

        ``shorter``: the new one may end earlier (another CA's may). ``trust`` receives the CAs of the ticket, once its
        certificate is in place.

        1. The machine is locked, so the request is a renewal and never a first ticket. NODELOCK_NOT_HELD
        2. The kubelet has a certificate. KUBELET_CREDENTIAL_MISSING, KUBECONFIG_MALFORMED
        3. The certificate is due; otherwise no request is sent.
        4. A ticket for a new key is fetched. Raises the refusal of the services, the channel or this machine.
        5. Its certificate is for this node and key, and ends no earlier than a present one from a ticket.
           KUBELET_CREDENTIAL_INVALID
        6. The API accepts the certificate. KUBELET_CREDENTIAL_REFUSED, API_UNREACHABLE
        7. One rename replaces certificate and key. FILE_UNUSABLE
        """
        self._require_lock()  # 1
        current = self._current()  # 2
        self._remove_leftovers()  # of a run that was killed
        if not at_once and self._machine.clock.now() < current.renews:  # 3
            return Renewed(validity=current, changed=False)
        try:
            ticket = self._fetch()  # 4
            fresh = ticket.credential
            ends = self._check(fresh, None if shorter else current)  # 5
            self._confirm(fresh)  # 6
            place(fresh, self._machine.paths, clock=self._machine.clock)  # 7
            if trust is not None:
                trust(ticket.cluster_ca)
        finally:
            self._remove_leftovers()
        return Renewed(validity=ends, changed=True)

    def _require_lock(self) -> None:
        if not self._machine.paths.lock_marker.exists():
            raise KubeadmError(
                "expected a machine that is locked to its cluster, it is not", reason=Reason.NODELOCK_NOT_HELD
            )

    def _current(self) -> Validity:
        found = validity(self._machine.paths)
        if found is None:
            raise KubeadmError(
                f"expected the kubelet's certificate in {self._machine.paths.kubelet_credential}, found none",
                reason=Reason.KUBELET_CREDENTIAL_MISSING,
            )
        return found

    def _fetch(self) -> NodeTicket:
        disk = self._journal.load().disk_id
        return ask_again(
            lambda: self._tickets.fetch(disk_id=disk),
            pause=self._tickets.pause,
            clock=self._machine.clock,
            wait_seconds=ASK_SECONDS,
        )

    def _check(self, fresh: KubeletCredential, current: Validity | None) -> Validity:
        require_pair(fresh, name=self._name)
        found = validity_of(fresh.certificate)
        if current is not None and found.ends < current.ends and not current.is_kubeadms:
            raise KubeadmError(
                f"expected a certificate that is good until {current.ends:%Y-%m-%dT%H:%M:%SZ} or longer, got one until "
                f"{found.ends:%Y-%m-%dT%H:%M:%SZ}",
                reason=Reason.KUBELET_CREDENTIAL_INVALID,
            )
        return found

    def _confirm(self, fresh: KubeletCredential) -> None:
        """Read this machine's Node with the new credential; a missing Node is a valid response and no refusal."""
        make_directory(self._directory, mode=0o700)
        write_atomic(self._candidate, fresh.to_pem())
        ask_again(
            lambda: self._reader(self._candidate).node(self._name),
            pause=_pause_of_api,
            clock=self._machine.clock,
            wait_seconds=CONFIRM_SECONDS,
        )

    @property
    def _candidate(self) -> Path:
        return self._directory / _CANDIDATE

    def _remove_leftovers(self) -> None:
        self._tickets.discard()
        remove(self._candidate)


def _pause_of_api(error: AttestedError) -> float | None:
    return _CONFIRM_PAUSE_SECONDS if error.reason is Reason.API_UNREACHABLE else None
