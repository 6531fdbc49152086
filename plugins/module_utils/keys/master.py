# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The master secret, the measurement salt and what a control plane holds of them.

A master secret is 32 bytes of key and 32 bytes of salt; as a file it is Constellation's JSON
``{"key": <base64>, "salt": <base64>}``, so that an orphaned cluster's secret can be imported.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import KeyServiceError
from ..proto import message_class, parse
from ..reasons import Reason
from .derive import cluster_id, measurement_secret
from .secret import MeasurementSecret, SecretBytes

if TYPE_CHECKING:
    from ..system import Random

MASTER_KEY_BYTES = 32
MASTER_SALT_BYTES = 32
MEASUREMENT_SALT_BYTES = 32

_BUNDLE = "attested.v1.InitBundle"
_BUNDLE_VERSION = 2
_FINGERPRINT_LABEL = b"attested.kubernetes/master-secret/fingerprint/v1"


@dataclass(frozen=True, slots=True)
class MasterSecret:
    """What every key of a cluster is derived from; its repr is empty."""

    key: SecretBytes = field(repr=False)
    salt: SecretBytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse other lengths: Constellation takes shorter keys, a cluster of ours never does."""
        if (len(self.key), len(self.salt)) != (MASTER_KEY_BYTES, MASTER_SALT_BYTES):
            raise KeyServiceError(
                f"expected {MASTER_KEY_BYTES} bytes of key and {MASTER_SALT_BYTES} of salt, "
                f"got {len(self.key)} and {len(self.salt)}",
                reason=Reason.MASTER_SECRET_MALFORMED,
            )

    def fingerprint(self) -> str:
        """Return 32 hex digits that name this secret and tell nothing about it."""
        mac = hmac.new(self.key.reveal(), _FINGERPRINT_LABEL + self.salt.reveal(), hashlib.sha256)
        return mac.hexdigest()[:32]

    def to_json(self) -> bytes:
        """Return Constellation's master secret file."""
        parts = {"key": self.key, "salt": self.salt}
        text = {name: base64.b64encode(part.reveal()).decode("ascii") for name, part in parts.items()}
        return json.dumps(text, sort_keys=True).encode("ascii")


def generate_master_secret(random: Random) -> MasterSecret:
    """Return a new master secret."""
    return MasterSecret(
        key=SecretBytes(random.token(MASTER_KEY_BYTES)), salt=SecretBytes(random.token(MASTER_SALT_BYTES))
    )


def generate_measurement_salt(random: Random) -> bytes:
    """Return a new measurement salt, 32 public bytes; one for a cluster."""
    return random.token(MEASUREMENT_SALT_BYTES)


def import_master_secret(data: bytes) -> MasterSecret:
    """Return the master secret of Constellation's JSON file; raises MASTER_SECRET_MALFORMED."""
    try:
        document = json.loads(data)
        key, salt = (base64.b64decode(document[name], validate=True) for name in ("key", "salt"))
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise KeyServiceError(
            'expected JSON {"key": <base64>, "salt": <base64>}, got something else',
            reason=Reason.MASTER_SECRET_MALFORMED,
        ) from None  # the cause would carry the text, and the text is the secret
    return MasterSecret(key=SecretBytes(key), salt=SecretBytes(salt))


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
