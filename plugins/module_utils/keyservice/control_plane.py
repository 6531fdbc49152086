# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a further control plane gets beside a worker's ticket, read where it lies at the moment it is asked for.

The files of kubeadm that all control planes share, and the signed policy by which the new one's record begins (ADR
0020). The key service runs as root and keeps none of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .._deps.crypto import exceptions, serialization
from ..core.documents import load_documents
from ..core.files import read_bytes
from ..errors import AttestedError, KeyServiceError
from ..policy.cluster import POLICY_NAME
from ..reasons import Reason
from .kube_api import POLICIES
from .kubelet import load_cluster_ca
from .master import SecretBytes
from .ticket import ADMISSION_FILE, CONTROL_PLANE_FILES, ENCRYPTION_FILE, MAX_FILE_BYTES, OPTIONAL_FILES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .authority import PolicyAuthority
    from .kube_api import Gateway

KUBERNETES = Path("/etc/kubernetes")

_AUTHORITIES = ("pki/ca", "pki/etcd/ca", "pki/front-proxy-ca")
_SIGNER = "pki/sa"
_KINDS = {ADMISSION_FILE: "AdmissionConfiguration", ENCRYPTION_FILE: "EncryptionConfiguration"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneMaterial:
    """The checked files by name (see `TicketSecrets`), and the signed policy as JSON."""

    files: Mapping[str, SecretBytes] = field(repr=False)
    policy: SecretBytes = field(repr=False)


class ControlPlaneSource(Protocol):
    """Where the material comes from."""

    def read(self) -> ControlPlaneMaterial:
        """Return it as it is now; raises `AttestedError` where anything of it is not whole."""


class OwnControlPlane:
    """The material of the control plane that this key service runs on."""

    def __init__(self, gateway: Gateway, authority: PolicyAuthority, *, directory: Path = KUBERNETES) -> None:
        """Read the policy through ``gateway`` as far as ``authority`` vouches for it, the files below ``directory``."""
        self._gateway = gateway
        self._authority = authority
        self._directory = directory

    def read(self) -> ControlPlaneMaterial:
        """Return it; raises CONTROL_PLANE_FILES_UNUSABLE, what `PolicyAuthority.vouched` raises, and the API's."""
        policy = self._authority.vouched(self._gateway.object(POLICIES, POLICY_NAME))
        return ControlPlaneMaterial(files=check_files(read_files(self._directory)), policy=SecretBytes(policy))


def read_files(directory: Path) -> dict[str, bytes]:
    """Return the files below ``directory``, `OPTIONAL_FILES` if they are there; raises CONTROL_PLANE_FILES_UNUSABLE."""
    names = [*CONTROL_PLANE_FILES, *(name for name in OPTIONAL_FILES if (directory / name).exists())]
    try:
        return {name: read_bytes(directory / name, limit=MAX_FILE_BYTES) for name in names}
    except AttestedError as error:
        raise _unusable(error.message) from error


def check_files(files: Mapping[str, bytes]) -> dict[str, SecretBytes]:
    """Return the files as secrets; raises CONTROL_PLANE_FILES_UNUSABLE, whose message holds none of them.

    1. Each certificate and key of a CA belong together.
    2. So do the two halves of the key that signs service accounts.
    3. What says how to encrypt at rest, or what Pods are held to, is a configuration for that, if it is there.
    """
    for stem in _AUTHORITIES:  # 1
        try:
            load_cluster_ca(files[f"{stem}.crt"], files[f"{stem}.key"])
        except KeyServiceError:
            raise _unusable(f"expected certificate and key of one CA in {stem}.crt and {stem}.key") from None
    _check_signer(files[f"{_SIGNER}.key"], files[f"{_SIGNER}.pub"])  # 2
    for name in set(OPTIONAL_FILES) & set(files):  # 3
        _check_kind(name, files[name])
    return {name: SecretBytes(data) for name, data in files.items()}


def _check_signer(key: bytes, public: bytes) -> None:
    try:
        same = serialization.load_pem_private_key(key, password=None).public_key() == serialization.load_pem_public_key(
            public
        )
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        same = False
    if not same:
        raise _unusable(f"expected the halves of one key in {_SIGNER}.key and {_SIGNER}.pub")


def _check_kind(name: str, data: bytes) -> None:
    try:
        documents = load_documents(data.decode())
    except ValueError:
        documents = []
    kinds = [one.get("kind") for one in documents if isinstance(one, dict)]
    if kinds != [_KINDS[name]] or len(documents) != 1:
        raise _unusable(f"expected one {_KINDS[name]} in {name}")


def _unusable(message: str) -> KeyServiceError:
    return KeyServiceError(message, reason=Reason.CONTROL_PLANE_FILES_UNUSABLE)
