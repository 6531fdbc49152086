# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constellation's key derivation: one key for each typed id, from one master secret (its v2 derivation).

    key        = HKDF-SHA256(secret=master key, salt=master salt, info="key-" + id, length=32)
    cluster id = HKDF-SHA256(secret=measurement secret, salt=measurement salt, info="key-clusterID", length=32)

An id is a type and not a string, so no call can derive a key of any other name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._deps.crypto import hashes, hkdf
from ..errors import Refusal
from ..reasons import Reason
from ..transport.binding import label, length_prefixed
from .master import DiskKey, MeasurementSecret, SecretBytes

if TYPE_CHECKING:
    from .master import MasterSecret

KEY_BYTES = 32
CLUSTER_ID_BYTES = 32

_PREFIX = "key-"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class DiskId:
    """The LUKS UUID of one state disk, lower case; raises DISK_ID_MALFORMED for anything else."""

    uuid: str

    def __post_init__(self) -> None:
        """Refuse another spelling: it would derive another key without an error."""
        if not _UUID.fullmatch(self.uuid):
            raise Refusal(
                f"expected a lower-case UUID as disk id, got {self.uuid[:64]!r}", reason=Reason.DISK_ID_MALFORMED
            )

    @property
    def info(self) -> str:
        """The info parameter of the derivation."""
        return _PREFIX + self.uuid

    @classmethod
    def from_random(cls, token: bytes) -> DiskId:
        """Return the version 4 UUID (RFC 9562 section 5.4) of 16 random bytes."""
        raw = bytearray(token)
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return cls("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))


def disk_key(master: MasterSecret, disk: DiskId) -> DiskKey:
    """Return the key of one state disk, 32 bytes."""
    return DiskKey(_derive(master.key, master.salt, disk.info))


def measurement_secret(master: MasterSecret) -> MeasurementSecret:
    """Return the cluster's measurement secret, 32 bytes."""
    return MeasurementSecret(_derive(master.key, master.salt, _PREFIX + "measurementSecret"))


def emergency_ssh_seed(master: MasterSecret) -> SecretBytes:
    """Return the seed of Constellation's emergency ssh CA (an Ed25519 private key), 32 bytes."""
    return SecretBytes(_derive(master.key, master.salt, _PREFIX + "ca_emergency_ssh"))


def cluster_id(secret: MeasurementSecret, salt: bytes) -> bytes:
    """Return the cluster id, 32 public bytes: what the nodelock extends."""
    return _derive(secret, salt, _PREFIX + "clusterID")


def policy_record_key(master: MasterSecret, cluster: bytes) -> SecretBytes:
    """Return the key that MACs the record of the policy, 32 bytes; ``cluster`` is the cluster id.

    It cannot be a key of Constellation: its info begins with a length, and theirs with ``key-``.
    """
    info = length_prefixed(label("policy-record-key"), cluster)
    derivation = hkdf.HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=master.salt.reveal(), info=info)
    return SecretBytes(derivation.derive(master.key.reveal()))


def _derive(secret: SecretBytes, salt: bytes | SecretBytes, info: str) -> bytes:
    salt_bytes = salt.reveal() if isinstance(salt, SecretBytes) else salt
    derivation = hkdf.HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=salt_bytes, info=info.encode("ascii"))
    return derivation.derive(secret.reveal())
