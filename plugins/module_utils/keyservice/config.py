# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration file of the key service."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from ..errors import KeyServiceError
from ..reasons import Reason
from .client import POLICY_SOCKET, SOCKET
from .control_plane import KUBERNETES
from .initial_disk import FOUNDER_DISK
from .key_bundle import KeyPaths
from .record import LOCK_DIRECTORY

CONFIG = "/etc/attested/key-service.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyServiceConfig:
    """The configuration file; the defaults are the paths on a node.

    ``api_server``: the URL of this control plane's own API. ``api_endpoint`` (host:port): the endpoint in tickets.
    ``kubernetes_directory``: holds the files that a further control plane receives.
    ``audit_directory``: the audit log. ``tcti``: the TPM that signs the log's head and counts the policy record.
    ``tickets_per_second`` and ``ticket_burst`` limit the tickets of one proven machine, and separately its pushes of
    evidence. ``ek_roots``: a file with roots of TPM makers, or a directory with roots and intermediates
    (`load_ek_store`); if it is set, every EK must also be certified.
    ``unknown_machines``: ``refuse`` them, or ``queue`` those that proved their key.
    ``reattest_overdue_seconds``: how old the last attestation of a node may be. ``reattest_grace_seconds``: how long
    after the start of the service no node becomes overdue; by default half of ``reattest_overdue_seconds``.
    ``founder_disk_file``: the id of this machine's state disk, if it is the founder (`FounderDisk`).
    ``kubelet_serving``: decide about serving certificates of kubelets; needs the RBAC for it.
    """

    node_name: str
    api_server: str
    api_endpoint: str
    join_user: str = "attested-join"
    cluster_ca_certificate: Path = Path("/etc/kubernetes/pki/ca.crt")
    cluster_ca_key: Path = Path("/etc/kubernetes/pki/ca.key")
    state_directory: Path = KeyPaths().rest
    kubernetes_directory: Path = KUBERNETES
    runtime_directory: Path = KeyPaths().opened
    socket: Path = Path(SOCKET)
    policy_socket: Path = Path(POLICY_SOCKET)
    tcti: str = "device:/dev/tpmrm0"
    tpm_lock_directory: Path = Path(LOCK_DIRECTORY)
    lock_register: int = 15
    ek_roots: Path | None = None
    audit_directory: Path = Path("/var/log/attested")
    metrics: bool = False
    tickets_per_second: float = 0.5
    ticket_burst: int = 20
    reattest_overdue_seconds: int = 3 * 3600
    reattest_grace_seconds: int | None = None
    unknown_machines: str = "refuse"
    kubelet_serving: bool = False
    founder_disk_file: Path = FOUNDER_DISK

    @property
    def overdue_after(self) -> timedelta:
        """How old the last attestation of a node may be."""
        return timedelta(seconds=self.reattest_overdue_seconds)

    @property
    def grace(self) -> timedelta:
        """How long after the start of the service no node becomes overdue: time for every node to push once."""
        seconds = self.reattest_grace_seconds
        return self.overdue_after / 2 if seconds is None else timedelta(seconds=seconds)

    @property
    def queues_unknown_machines(self) -> bool:
        """Whether unknown machines wait for an admin; raises CONFIG_INVALID for an unknown value."""
        if self.unknown_machines not in {"queue", "refuse"}:
            raise KeyServiceError(
                f"expected unknown_machines as queue or refuse, got {self.unknown_machines[:64]!r}",
                reason=Reason.CONFIG_INVALID,
            )
        return self.unknown_machines == "queue"
