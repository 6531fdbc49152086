# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a control plane holds of its cluster's secrets, and the form in which that is sealed and kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import KeyServiceError
from ..proto import message_class, parse
from ..reasons import Reason
from .derive import cluster_id, measurement_secret
from .master import MasterSecret
from .secret import MeasurementSecret, SecretBytes

_BUNDLE = "attested.v1.InitBundle"
_BUNDLE_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBundle:
    """What a control plane's key service holds: all of the cluster's secrets, and nothing derived from them.

    ``policy_key`` (PEM) is no secret, but what a control plane believes: the public half of the site's policy key.
    """

    master: MasterSecret = field(repr=False)
    measurement_salt: bytes
    join_ca_key: SecretBytes = field(repr=False)
    join_ca_certificate: bytes
    policy_key: bytes
    cluster_id: bytes

    def measurement_secret(self) -> MeasurementSecret:
        """Return the cluster's measurement secret."""
        return measurement_secret(self.master)

    def require_cluster(self) -> None:
        """Raise CLUSTER_ID_MISMATCH unless the secrets derive the cluster id that the bundle names."""
        derived = cluster_id(self.measurement_secret(), self.measurement_salt)
        if derived != self.cluster_id:
            raise KeyServiceError(
                f"expected the cluster id {self.cluster_id.hex()}, the secrets derive {derived.hex()}",
                reason=Reason.CLUSTER_ID_MISMATCH,
            )

    def to_bytes(self) -> bytes:
        """Return the bundle as `attested.v1.InitBundle`: what is sealed, and what rests encrypted."""
        message = message_class(_BUNDLE)(
            version=_BUNDLE_VERSION,
            master_key=self.master.key.reveal(),
            master_salt=self.master.salt.reveal(),
            measurement_salt=self.measurement_salt,
            join_ca_key=self.join_ca_key.reveal(),
            join_ca_certificate=self.join_ca_certificate,
            cluster_id=self.cluster_id,
            policy_key=self.policy_key,
        )
        return bytes(message.SerializeToString(deterministic=True))

    @classmethod
    def from_bytes(cls, data: bytes) -> KeyBundle:
        """Return the bundle of ``data``; raises KEY_BUNDLE_VERSION_UNKNOWN or CLUSTER_ID_MISMATCH."""
        message = parse(_BUNDLE, data)
        if message.version != _BUNDLE_VERSION:
            raise KeyServiceError(
                f"expected a key bundle of version {_BUNDLE_VERSION}, got {message.version}",
                reason=Reason.KEY_BUNDLE_VERSION_UNKNOWN,
            )
        bundle = cls(
            master=MasterSecret(key=SecretBytes(message.master_key), salt=SecretBytes(message.master_salt)),
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
    """Return the bundle of a cluster, its id derived."""
    return KeyBundle(
        master=master,
        measurement_salt=measurement_salt,
        join_ca_key=join_ca_key,
        join_ca_certificate=join_ca_certificate,
        policy_key=policy_key,
        cluster_id=cluster_id(measurement_secret(master), measurement_salt),
    )
