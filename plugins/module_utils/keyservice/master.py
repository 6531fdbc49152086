# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The master secret of a cluster, and its measurement salt.

A master secret is 32 bytes of key and 32 bytes of salt. Its file is Constellation's JSON
``{"key": <base64>, "salt": <base64>}``, so that the secret of a Constellation cluster can be imported.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from ..core.documents import load_json
from ..errors import KeyServiceError
from ..reasons import Reason

if TYPE_CHECKING:
    from ..core.host import Random


# Secret bytes: no content in a repr, comparison in constant time, no pickling.


class SecretBytes:
    """A secret value of any length; only `reveal` returns its bytes."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        """Store ``value``."""
        self._value = bytes(value)

    def reveal(self) -> bytes:
        """Return the bytes; use them only in the call that needs them."""
        return self._value

    def __len__(self) -> int:
        """Return the length in bytes, which is no secret."""
        return len(self._value)

    def __repr__(self) -> str:
        """Return the type's name and nothing of the content."""
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        """Compare in constant time; another type is never equal."""
        if type(other) is not type(self):
            return NotImplemented
        return hmac.compare_digest(self._value, other.reveal())

    __hash__ = None  # type: ignore[assignment]  # a secret must not be a dictionary key

    def __reduce__(self) -> NoReturn:
        """Refuse, because a pickle would contain the secret."""
        message = f"{type(self).__name__} cannot be pickled"
        raise TypeError(message)


class DiskKey(SecretBytes):
    """The key of one node's state disk, 32 bytes."""

    __slots__ = ()


class MeasurementSecret(SecretBytes):
    """The secret that the cluster id is derived from, 32 bytes; one for each cluster."""

    __slots__ = ()


MASTER_KEY_BYTES = 32
MASTER_SALT_BYTES = 32
MEASUREMENT_SALT_BYTES = 32

_FINGERPRINT_LABEL = b"attested.kubernetes/master-secret/fingerprint/v1"


@dataclass(frozen=True, slots=True)
class MasterSecret:
    """The secret that every key of a cluster is derived from; its repr is empty."""

    key: SecretBytes = field(repr=False)
    salt: SecretBytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse other lengths: Constellation accepts shorter keys, this collection does not."""
        if (len(self.key), len(self.salt)) != (MASTER_KEY_BYTES, MASTER_SALT_BYTES):
            raise KeyServiceError(
                f"expected a master secret of {MASTER_KEY_BYTES} bytes of key and {MASTER_SALT_BYTES} of salt, "
                f"got {len(self.key)} and {len(self.salt)}",
                reason=Reason.SITE_SECRET_MALFORMED,
            )

    def fingerprint(self) -> str:
        """Return 32 hex digits that identify this secret and reveal nothing about it."""
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
    """Return a new measurement salt, 32 public bytes; one for each cluster."""
    return random.token(MEASUREMENT_SALT_BYTES)


def rotated() -> KeyServiceError:
    """Return the error for a rotated master secret where only a never rotated one is accepted."""
    return KeyServiceError(
        "expected a master secret that was never rotated, got another version", reason=Reason.MASTER_SECRET_ROTATED
    )


def import_master_secret(data: bytes) -> MasterSecret:
    """Return the master secret of Constellation's JSON file.

    Raises SITE_SECRET_MALFORMED, and MASTER_SECRET_ROTATED for the file of a ring that was rotated (`import_ring`).
    """
    try:
        document = load_json(data)
        if isinstance(document, dict) and "number" in document:
            raise rotated()
        key, salt = (base64.b64decode(document[name], validate=True) for name in ("key", "salt"))
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise KeyServiceError(
            'expected the master secret as JSON {"key": <base64>, "salt": <base64>}, got something else',
            reason=Reason.SITE_SECRET_MALFORMED,
        ) from None  # the cause would contain the text, which is the secret
    return MasterSecret(key=SecretBytes(key), salt=SecretBytes(salt))
