# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages of recovery as bytes: Constellation's, with fields of this collection from 1000 on.

admin → node   Identify, Testify        the two calls of a verification, for the purpose `recover`
admin → node   Recover(RecoverMessage)  metadata attested-admin-bin: the admin's proof for this exchange
node → admin   RecoverResponse          empty: the disk is open; else code, message and hint
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import Refusal, visible
from ..keyservice.derive import DiskId
from ..keyservice.master import DiskKey, MeasurementSecret
from ..proto.messages import message_class, method_path, parse
from ..reasons import Reason

IDENTIFY = method_path("attested.v1.Recovery", "Identify")
TESTIFY = method_path("attested.v1.Recovery", "Testify")
RECOVER = method_path("recoverproto.API", "Recover")

MAX_REQUEST_BYTES = 4096
"""A challenge has 0.5 KB; a sealed box of two keys is smaller."""

_REQUEST = "recoverproto.RecoverMessage"
_RESPONSE = "recoverproto.RecoverResponse"
_SECRETS = "attested.v1.RecoverySecrets"
_VERSION = 1
_KEY_BYTES = 32
_ID_BYTES = 16
_MAX_SECRETS_BYTES = 512
_MAX_ANSWER_BYTES = 1 << 14
_MAX_TEXT = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOrder:
    """The admin's request: the box ``sealed`` for the exchange ``challenge_id``; the salt (32 bytes) is public."""

    challenge_id: bytes
    measurement_salt: bytes
    sealed: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return the serialised ``recoverproto.RecoverMessage``."""
        message = message_class(_REQUEST)(
            challenge_id=self.challenge_id, sealed=self.sealed, measurement_salt=self.measurement_salt
        )
        return bytes(message.SerializeToString())

    @classmethod
    def parse(cls, data: bytes) -> RecoverOrder:
        """Return the order in ``data``; raises MESSAGE_MALFORMED, MESSAGE_TOO_LARGE, SECRETS_IN_CLEAR."""
        message = parse(_REQUEST, data, limit=MAX_REQUEST_BYTES)
        if message.kms_uri or message.storage_uri:
            raise Refusal(
                "expected the keys of this node alone, sealed to it, got a URI that holds the master secret in clear",
                reason=Reason.SECRETS_IN_CLEAR,
            )
        if (len(message.challenge_id), len(message.measurement_salt)) != (_ID_BYTES, _KEY_BYTES):
            raise Refusal(
                f"expected an exchange of {_ID_BYTES} bytes and a salt of {_KEY_BYTES}, got "
                f"{len(message.challenge_id)} and {len(message.measurement_salt)}",
                reason=Reason.MESSAGE_MALFORMED,
            )
        return cls(challenge_id=message.challenge_id, measurement_salt=message.measurement_salt, sealed=message.sealed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySecrets:
    """The secrets that open one node's disk and prove its cluster; a locked node never gets more.

    ``other_disk_keys``: the disk's keys under the other versions of the master secret, while it is rotated.
    """

    disk: DiskId
    disk_key: DiskKey = field(repr=False)
    measurement_secret: MeasurementSecret = field(repr=False)
    other_disk_keys: tuple[DiskKey, ...] = field(default=(), repr=False)

    def to_bytes(self) -> bytes:
        """Return the serialised ``attested.v1.RecoverySecrets``, to be sealed."""
        message = message_class(_SECRETS)(
            version=_VERSION,
            disk_uuid=self.disk.uuid,
            disk_key=self.disk_key.reveal(),
            measurement_secret=self.measurement_secret.reveal(),
            other_disk_keys=[one.reveal() for one in self.other_disk_keys],
        )
        return bytes(message.SerializeToString())

    @classmethod
    def from_bytes(cls, data: bytes) -> RecoverySecrets:
        """Return the secrets of a box; raises MESSAGE_MALFORMED, MESSAGE_TOO_LARGE, DISK_ID_MALFORMED."""
        message = parse(_SECRETS, data, limit=_MAX_SECRETS_BYTES)
        found = (message.version, len(message.disk_key), len(message.measurement_secret))
        others = tuple(message.other_disk_keys)
        if found != (_VERSION, _KEY_BYTES, _KEY_BYTES) or any(len(one) != _KEY_BYTES for one in others):
            raise Refusal(
                f"expected version {_VERSION} and two keys of {_KEY_BYTES} bytes, got {found}",
                reason=Reason.MESSAGE_MALFORMED,
            )
        return cls(
            disk=DiskId(message.disk_uuid),
            disk_key=DiskKey(message.disk_key),
            measurement_secret=MeasurementSecret(message.measurement_secret),
            other_disk_keys=tuple(map(DiskKey, others)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverAnswer:
    """The outcome of a recovery, for an authenticated admin: an empty ``code`` means that the disk is open."""

    code: str = ""
    message: str = ""
    hint: str = ""

    def to_bytes(self) -> bytes:
        """Return the serialised ``recoverproto.RecoverResponse``."""
        message = message_class(_RESPONSE)(code=self.code, error=self.message[:_MAX_TEXT], hint=self.hint[:_MAX_TEXT])
        return bytes(message.SerializeToString())

    @classmethod
    def parse(cls, data: bytes) -> RecoverAnswer:
        """Return the answer with control characters escaped; raises MESSAGE_MALFORMED, MESSAGE_TOO_LARGE."""
        message = parse(_RESPONSE, data, limit=_MAX_ANSWER_BYTES)
        return cls(code=_line(message.code), message=_line(message.error), hint=_line(message.hint))


def _line(text: str) -> str:
    """Return ``text`` as one line that a terminal may show."""
    return visible(text[:_MAX_TEXT].replace("\n", " "))
