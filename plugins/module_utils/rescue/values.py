# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derive all values that Constellation derives from a master secret. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._deps.crypto import ed25519, serialization
from ..core.documents import load_documents
from ..errors import KeyServiceError, SiteError
from ..keyservice.derive import DiskId, cluster_id
from ..keyservice.master import DiskKey, SecretBytes
from ..keyservice.ring import MasterRing, NamedDiskKey
from ..reasons import Reason

if TYPE_CHECKING:
    from ..keyservice.master import MasterSecret, MeasurementSecret


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicValues:
    """Public values: names of secrets, and measured values.

    ``cluster_id``, ``pcr15_sha256`` and ``pcr15_sha384`` are "" without the measurement salt. The last two are the
    values of register 15 (RTMR 2 of TDX) of a node in the cluster whose boot extended nothing else into it.
    """

    fingerprint: str
    ssh_ca: str
    cluster_id: str
    pcr15_sha256: str
    pcr15_sha384: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecrets:
    """Secret values; ``ssh_ca`` is the private key in OpenSSH's form.

    ``disks`` are keys by UUID; ``others`` are the keys of other versions of a master secret of ours that is rotated.
    """

    public: PublicValues
    measurement_secret: SecretBytes = field(repr=False)
    ssh_ca: SecretBytes = field(repr=False)
    disks: dict[str, DiskKey] = field(repr=False)
    others: dict[str, tuple[NamedDiskKey, ...]] = field(default_factory=dict, repr=False)


def derive_cluster(
    master: MasterSecret | MasterRing, *, disks: tuple[str, ...] = (), values: ClusterValues | None = None
) -> ClusterSecrets:
    """Return all values that follow from ``master``; raises DISK_ID_MALFORMED.

    If ``values`` have a cluster id, the derived id must be equal (CLUSTER_ID_MISMATCH); otherwise the master secret and
    all derived keys belong to another cluster.
    """
    ring = master if isinstance(master, MasterRing) else MasterRing.first(master)
    measured = ring.carried.measurement_secret
    keys = {one: ring.disk_keys(DiskId(one)) for one in disks}
    cluster = b"" if values is None else check_cluster(measured, values)
    private = ed25519.Ed25519PrivateKey.from_private_bytes(ring.carried.emergency_ssh_seed.reveal())
    return ClusterSecrets(
        public=PublicValues(
            fingerprint=ring.lead.secret.fingerprint(),
            ssh_ca=_public_ssh(private),
            cluster_id=cluster.hex(),
            pcr15_sha256=lock_value(cluster, "sha256").hex() if cluster else "",
            pcr15_sha384=lock_value(cluster, "sha384").hex() if cluster else "",
        ),
        measurement_secret=measured,
        ssh_ca=SecretBytes(_private_ssh(private)),
        disks={one: named[0].key for one, named in keys.items()},
        others={one: named[1:] for one, named in keys.items()},
    )


def check_cluster(measured: MeasurementSecret, values: ClusterValues) -> bytes:
    """Return the cluster id of ``measured``; raises CLUSTER_ID_MISMATCH if ``values`` have another one."""
    cluster = cluster_id(measured, values.measurement_salt)
    if values.cluster_id not in {b"", cluster}:
        raise KeyServiceError(
            f"expected the cluster id {values.cluster_id.hex()}, the secret derives {cluster.hex()}",
            reason=Reason.CLUSTER_ID_MISMATCH,
            hint="The secret and the state file are of two clusters; look for the files that were stored together.",
        )
    return cluster


def lock_value(cluster: bytes, bank: str, *, before: bytes = b"") -> bytes:
    """Return a register's value after the cluster id was measured into it; ``before``: its old value, default zeros."""
    event = hashlib.new(bank, cluster).digest()
    return hashlib.new(bank, (before or bytes(len(event))) + event).digest()


def _public_ssh(key: ed25519.Ed25519PrivateKey) -> str:
    encoded = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return encoded.decode("ascii")


def _private_ssh(key: ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


# The other known values of a cluster: Constellation's state file (version v1), or the salt only.

_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterValues:
    """The measurement salt, 32 public bytes, and the cluster id, b"" if it is unknown."""

    measurement_salt: bytes
    cluster_id: bytes = b""


def parse_state(data: bytes) -> ClusterValues:
    """Return the values of ``constellation-state.yaml``; raises RESCUE_FILE_MALFORMED."""
    try:
        documents = load_documents(data.decode("utf-8"))
    except ValueError as error:
        raise _malformed(f"it cannot be read: {error}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise _malformed("expected one mapping")
    if documents[0].get("version") != "v1":
        raise _malformed(f"expected version v1, got {str(documents[0].get('version'))[:20]}")
    values = documents[0].get("clusterValues")
    if not isinstance(values, dict):
        raise _malformed("expected clusterValues")
    return ClusterValues(
        measurement_salt=_hex(values, "measurementSalt"),
        cluster_id=_hex(values, "clusterID") if values.get("clusterID") else b"",
    )


def _hex(values: dict[Any, Any], name: str) -> bytes:
    text = values.get(name)
    try:
        data = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        data = b""
    if len(data) != _BYTES:
        raise _malformed(f"expected {name} as {2 * _BYTES} hex digits")
    return data


def _malformed(problem: str) -> SiteError:
    return SiteError(f"the state file: {problem}", reason=Reason.RESCUE_FILE_MALFORMED)
