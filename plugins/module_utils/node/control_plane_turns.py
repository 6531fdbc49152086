# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane's turn to restart components, and its API server.

The turn is the Lease that joining control planes also take.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.command import SystemRunner
from ..core.files import make_directory, read_bytes, write_atomic
from ..core.host import SystemClock
from ..errors import AttestedError, KubeadmError
from ..keyservice.join_lease import JoinTurns
from ..keyservice.kube_api import ApiGateway, CredentialFiles
from ..kubeadm.credential import embedded_credential
from ..kubeadm.kubectl import Kubectl
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths
from ..kubeadm.static_pods import StaticPods, probe_of
from ..reasons import Reason
from .config import load_node_config
from .renewal_record import CONTROL_PLANE_DIRECTORY, alone
from .retry import ask_again

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..core.host import Clock
    from ..keyservice.join_lease import TurnApi
    from ..keyservice.kube_api import Credential

TAKE_SECONDS = 300.0
FREE_SECONDS = 60.0
_PAUSE_SECONDS = 5.0
_LIMIT = 1 << 20
_PASSES = frozenset({Reason.API_CONFLICT, Reason.API_FORBIDDEN, Reason.API_UNAVAILABLE, Reason.CONTROL_PLANE_JOIN_BUSY})
"""Reasons that pass by themselves. An API server that has just started may answer 403 before RBAC is loaded."""


class AdminCredential:
    """The credential of admin.conf as files on tmpfs.

    It is read at each call, because a renewal replaces it.
    """

    def __init__(self, paths: KubernetesPaths, directory: Path) -> None:
        """Store the paths; the files are written to ``directory``, which belongs to root."""
        self._paths = paths
        self._directory = directory
        self._digest = b""
        self._serial = 0

    def current(self) -> CredentialFiles:
        """Write the files if admin.conf has changed, and return them; raises KUBECONFIG_MALFORMED."""
        data = read_bytes(self._paths.admin_config, limit=_LIMIT)
        certificate, key = self._directory / "admin.crt", self._directory / "admin.key"
        digest = hashlib.sha256(data).digest()
        if digest != self._digest:
            found = embedded_credential(data)
            if found is None:
                raise KubeadmError(
                    f"expected {self._paths.admin_config} with a certificate inside",
                    reason=Reason.KUBECONFIG_MALFORMED,
                    hint="Move the file away and let kubeadm write a new one: kubeadm init phase kubeconfig admin.",
                )
            make_directory(self._directory, mode=0o700)
            write_atomic(certificate, found.certificate)
            write_atomic(key, found.key)
            self._digest = digest
            self._serial += 1
        return CredentialFiles(certificate=certificate, private_key=key, serial=self._serial)

    def remove(self) -> None:
        """Remove the files."""
        for name in ("admin.crt", "admin.key"):
            (self._directory / name).unlink(missing_ok=True)


def local_api(machine: Machine, credential: Credential) -> ApiGateway:
    """Return a gateway to the API server of this machine, at the address in its manifest."""
    probe = probe_of(read_bytes(machine.paths.kubernetes / "manifests/kube-apiserver.yaml", limit=_LIMIT))
    host = f"[{probe.host}]" if ":" in probe.host else probe.host
    return ApiGateway(server=f"https://{host}:{probe.port}", ca_file=machine.paths.ca, credential=credential)


class ControlPlaneTurns:
    """The turn of one control plane, held by the name of its Node."""

    def __init__(self, api: TurnApi, *, node: str, clock: Clock, holder: str = "") -> None:
        """Take the Lease by ``api``; the holder is no identity's name, so no key service ends its turn.

        ``holder`` is the holder name of a playbook that took the turn before this object and frees it afterwards.
        """
        self._turns = JoinTurns(api, clock=clock, freed=lambda _holder: None)
        self._holder = holder or f"renewal.{node}"
        self._lent = bool(holder)
        self._clock = clock

    def take(self) -> None:
        """Take or renew the turn; wait up to five minutes while another holder has it."""
        ask_again(lambda: self._turns.take(self._holder), pause=_pause, clock=self._clock, wait_seconds=TAKE_SECONDS)

    def free(self) -> None:
        """Free the turn; if the API is unreachable, the turn expires by itself."""
        if self._lent:
            return
        with contextlib.suppress(AttestedError):
            ask_again(
                lambda: self._turns.free(self._holder), pause=_pause, clock=self._clock, wait_seconds=FREE_SECONDS
            )


def _pause(error: AttestedError) -> float | None:
    return max(error.retry_after_seconds, _PAUSE_SECONDS) if error.reason in _PASSES else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPlane:
    """The collaborators that change a running control plane: machine, static Pods, kubectl and turn."""

    machine: Machine
    pods: StaticPods
    kubectl: Kubectl
    turns: ControlPlaneTurns


@contextlib.contextmanager
def running_plane(node_config: str) -> Iterator[RunningPlane]:
    """Yield this control plane to one process at a time.

    The admin's credential is on tmpfs until the block ends.
    """
    node = load_node_config(node_config).name
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
    with alone(CONTROL_PLANE_DIRECTORY):
        credential = AdminCredential(machine.paths, CONTROL_PLANE_DIRECTORY)
        try:
            api = local_api(machine, credential)
            yield RunningPlane(
                machine=machine,
                pods=StaticPods(machine, node=node, reader=api),
                kubectl=Kubectl.of_a_module(str(machine.paths.admin_config)),
                turns=ControlPlaneTurns(api, node=node, clock=machine.clock),
            )
        finally:
            credential.remove()
