# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key bundle: the cluster secrets that a control plane holds, and their serialised form."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KeyServiceError
from ..proto.messages import message_class, parse
from ..reasons import Reason
from .derive import cluster_id, policy_record_key
from .master import MasterSecret, MeasurementSecret, SecretBytes
from .ring import Carried, MasterRing, MasterVersion

if TYPE_CHECKING:
    from collections.abc import Iterable

_BUNDLE = "attested.v1.InitBundle"
_BUNDLE_VERSION = 2
_ROTATED_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBundle:
    """The secrets of a key service: all of the cluster's secrets, and nothing derived from them.

    ``policy_key`` (PEM) is no secret: it is the site's public policy key, which a control plane trusts.
    """

    ring: MasterRing = field(repr=False)
    measurement_salt: bytes
    join_ca_key: SecretBytes = field(repr=False)
    join_ca_certificate: bytes
    policy_key: bytes
    cluster_id: bytes

    @property
    def master(self) -> MasterSecret:
        """The leading version of the master secret."""
        return self.ring.lead.secret

    def measurement_secret(self) -> MeasurementSecret:
        """Return the cluster's measurement secret."""
        return self.ring.carried.measurement_secret

    def record_keys(self) -> tuple[SecretBytes, ...]:
        """Return the keys that may have MACed the record of the policy, the current key first."""
        return tuple(policy_record_key(one.secret, self.cluster_id) for one in self.ring.versions)

    def ordered(self, names: Iterable[str]) -> KeyBundle:
        """Return the bundle with only these versions of the master secret; raises MASTER_SECRET_UNKNOWN."""
        return replace(self, ring=self.ring.ordered(names))

    def require_cluster(self) -> None:
        """Raise CLUSTER_ID_MISMATCH unless the secrets derive the cluster id that the bundle names."""
        derived = cluster_id(self.measurement_secret(), self.measurement_salt)
        if derived != self.cluster_id:
            raise KeyServiceError(
                f"expected the cluster id {self.cluster_id.hex()}, the secrets derive {derived.hex()}",
                reason=Reason.CLUSTER_ID_MISMATCH,
            )

    def to_bytes(self) -> bytes:
        """Return the bundle as `attested.v1.InitBundle`, the form that is sealed and encrypted at rest.

        A master secret that was never rotated has message version 2, which earlier releases read too.
        """
        message = message_class(_BUNDLE)(
            version=_BUNDLE_VERSION if self.ring.is_first else _ROTATED_VERSION,
            measurement_salt=self.measurement_salt,
            join_ca_key=self.join_ca_key.reveal(),
            join_ca_certificate=self.join_ca_certificate,
            cluster_id=self.cluster_id,
            policy_key=self.policy_key,
        )
        _put_ring(message, self.ring)
        return bytes(message.SerializeToString(deterministic=True))

    @classmethod
    def from_bytes(cls, data: bytes) -> KeyBundle:
        """Return the bundle of ``data``.

        Raises FILE_VERSION_UNKNOWN, SITE_SECRET_MALFORMED or CLUSTER_ID_MISMATCH.
        """
        message = parse(_BUNDLE, data)
        if message.version not in (_BUNDLE_VERSION, _ROTATED_VERSION):
            raise KeyServiceError(
                f"expected a key bundle of version {_BUNDLE_VERSION} or {_ROTATED_VERSION}, got {message.version}",
                reason=Reason.FILE_VERSION_UNKNOWN,
            )
        bundle = cls(
            ring=_ring_of(message),
            measurement_salt=message.measurement_salt,
            join_ca_key=SecretBytes(message.join_ca_key),
            join_ca_certificate=message.join_ca_certificate,
            cluster_id=message.cluster_id,
            policy_key=message.policy_key,
        )
        bundle.require_cluster()
        return bundle


def make_bundle(
    *,
    master: MasterSecret,
    measurement_salt: bytes,
    join_ca_key: SecretBytes,
    join_ca_certificate: bytes,
    policy_key: bytes,
) -> KeyBundle:
    """Return the bundle of a new cluster, with the derived cluster id."""
    ring = MasterRing.first(master)
    return KeyBundle(
        ring=ring,
        measurement_salt=measurement_salt,
        join_ca_key=join_ca_key,
        join_ca_certificate=join_ca_certificate,
        policy_key=policy_key,
        cluster_id=cluster_id(ring.carried.measurement_secret, measurement_salt),
    )


def _put_ring(message: Any, ring: MasterRing) -> None:
    if ring.is_first:
        message.master_key, message.master_salt = ring.lead.secret.key.reveal(), ring.lead.secret.salt.reveal()
        return
    for one in ring.versions:
        message.versions.add(number=one.number, key=one.secret.key.reveal(), salt=one.secret.salt.reveal())
    message.measurement_secret = ring.carried.measurement_secret.reveal()
    message.emergency_ssh_seed = ring.carried.emergency_ssh_seed.reveal()


def _ring_of(message: Any) -> MasterRing:
    if message.version == _BUNDLE_VERSION:
        return MasterRing.first(_secret(message.master_key, message.master_salt))
    carried = Carried(
        measurement_secret=MeasurementSecret(message.measurement_secret),
        emergency_ssh_seed=SecretBytes(message.emergency_ssh_seed),
    )
    versions = (MasterVersion(number=one.number, secret=_secret(one.key, one.salt)) for one in message.versions)
    return MasterRing(versions=tuple(versions), carried=carried)


def _secret(key: bytes, salt: bytes) -> MasterSecret:
    return MasterSecret(key=SecretBytes(key), salt=SecretBytes(salt))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPaths:
    """The paths of the two copies; only root can read both directories."""

    rest: Path = Path("/var/lib/attested/key-service")
    opened: Path = Path("/run/attested/key-service")

    @property
    def rest_file(self) -> Path:
        """The encrypted copy."""
        return self.rest / "keys.json"

    @property
    def opened_file(self) -> Path:
        """The decrypted copy, on tmpfs."""
        return self.opened / "keys"

    @property
    def held_file(self) -> Path:
        """The names of the master secret versions that the running key service has loaded; no secret."""
        return self.opened / "held.json"
