# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The additional content of a control plane's ticket, read from this control plane for each ticket.

These are the kubeadm files that all control planes share, and the signed policy that begins the new control plane's
record (ADR 0020). The key service runs as root and keeps no copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .._deps.crypto import exceptions, serialization
from ..core.documents import load_documents
from ..core.files import read_bytes
from ..errors import AttestedError, KeyServiceError
from ..policy.cluster import POLICY_NAME
from ..reasons import Reason
from .kube_api import POLICIES
from .kubelet import load_cluster_ca
from .master import SecretBytes
from .ticket import (
    ADMISSION_FILE,
    AUDIT_WEBHOOK_FILE,
    AUTHENTICATION_FILE,
    CONTROL_PLANE_FILES,
    ENCRYPTION_FILE,
    MAX_FILE_BYTES,
    OPTIONAL_FILES,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .kube_api import Gateway
    from .record import PolicyAuthority

KUBERNETES = Path("/etc/kubernetes")

_AUTHORITIES = ("pki/ca", "pki/etcd/ca", "pki/front-proxy-ca")
_SIGNER = "pki/sa"
_KINDS = {
    ADMISSION_FILE: "AdmissionConfiguration",
    AUDIT_WEBHOOK_FILE: "Config",
    AUTHENTICATION_FILE: "AuthenticationConfiguration",
    ENCRYPTION_FILE: "EncryptionConfiguration",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneMaterial:
    """The checked files by name (see `TicketSecrets`), and the signed policy as JSON."""

    files: Mapping[str, SecretBytes] = field(repr=False)
    policy: SecretBytes = field(repr=False)


class ControlPlaneSource(Protocol):
    """Reads the material."""

    def read(self) -> ControlPlaneMaterial:
        """Return the material as it is now; raises `AttestedError` if any part is missing or invalid."""


class OwnControlPlane:
    """The material of the control plane that this key service runs on."""

    def __init__(self, gateway: Gateway, authority: PolicyAuthority, *, directory: Path = KUBERNETES) -> None:
        """Read the policy through ``gateway``, checked by ``authority``, and the files below ``directory``."""
        self._gateway = gateway
        self._authority = authority
        self._directory = directory

    def read(self) -> ControlPlaneMaterial:
        """Return the material; raises CONTROL_PLANE_FILES_UNUSABLE, as `PolicyAuthority.vouched`, and `ApiError`."""
        policy = self._authority.vouched(self._gateway.object(POLICIES, POLICY_NAME))
        return ControlPlaneMaterial(files=check_files(read_files(self._directory)), policy=SecretBytes(policy))


def read_files(directory: Path) -> dict[str, bytes]:
    """Return the files below ``directory``, `OPTIONAL_FILES` if they exist; raises CONTROL_PLANE_FILES_UNUSABLE."""
    names = [*CONTROL_PLANE_FILES, *(name for name in OPTIONAL_FILES if (directory / name).exists())]
    try:
        return {name: read_bytes(directory / name, limit=MAX_FILE_BYTES) for name in names}
    except AttestedError as error:
        raise _unusable(error.message) from error


def check_files(files: Mapping[str, bytes]) -> dict[str, SecretBytes]:
    """Return the files as secrets; raises CONTROL_PLANE_FILES_UNUSABLE, whose message contains no file content.

    1. The certificate and the private key of each CA belong together.
    2. So do the private and the public key that sign and verify service account tokens.
    3. Each of the other configurations, if it exists, has the right kind. One without issuers is left out: each
       control plane has it anyway.
    """
    for stem in _AUTHORITIES:  # 1
        try:
            load_cluster_ca(files[f"{stem}.crt"], files[f"{stem}.key"])
        except KeyServiceError:
            raise _unusable(f"expected certificate and key of one CA in {stem}.crt and {stem}.key") from None
    _check_signer(files[f"{_SIGNER}.key"], files[f"{_SIGNER}.pub"])  # 2
    given = {name: _document(name, files[name]) for name in set(OPTIONAL_FILES) & set(files)}  # 3
    without = {name for name in given if name == AUTHENTICATION_FILE and not given[name].get("jwt")}
    return {name: SecretBytes(data) for name, data in files.items() if name not in without}


def _check_signer(key: bytes, public: bytes) -> None:
    try:
        same = serialization.load_pem_private_key(key, password=None).public_key() == serialization.load_pem_public_key(
            public
        )
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        same = False
    if not same:
        raise _unusable(f"expected private and public key of one pair in {_SIGNER}.key and {_SIGNER}.pub")


def _document(name: str, data: bytes) -> dict[str, Any]:
    try:
        documents = load_documents(data.decode())
    except ValueError:
        documents = []
    kinds = [one.get("kind") for one in documents if isinstance(one, dict)]
    if kinds != [_KINDS[name]] or len(documents) != 1:
        raise _unusable(f"expected one {_KINDS[name]} in {name}")
    document: dict[str, Any] = documents[0]
    return document


def _unusable(message: str) -> KeyServiceError:
    return KeyServiceError(message, reason=Reason.CONTROL_PLANE_FILES_UNUSABLE)
