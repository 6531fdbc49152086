# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions of a cluster's master secret (ADR 0042): one, and two during a rotation. Pure.

A version is named by its number and the beginning of its fingerprint, ``2-9f2c1d5e9f2c1d5e``. The higher number is the
newer version, and a name never means two secrets. Values that were derived from the first version and must not change
are stored: the measurement secret, and with it the cluster id, and the seed of the emergency SSH CA.

The file of a ring with only the first version is Constellation's master secret file; other rings add members to it.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..errors import KeyServiceError
from ..reasons import Reason
from .derive import disk_key, emergency_ssh_seed, measurement_secret
from .master import DiskKey, MasterSecret, MeasurementSecret, SecretBytes, import_master_secret, rotated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .derive import DiskId

VERSION_NAME = re.compile(r"[1-9][0-9]{0,5}-[0-9a-f]{16}")
MAX_VERSIONS = 2

_NAME_DIGITS = 16
_VALUE_BYTES = 32
_VERSION_MEMBERS = {"number", "key", "salt"}
_MEMBERS = {*_VERSION_MEMBERS, "others", "measurement_secret", "emergency_ssh_seed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterVersion:
    """One version: its number, from 1 on, and the secret."""

    number: int
    secret: MasterSecret = field(repr=False)

    @property
    def name(self) -> str:
        """The name of this version, which is no secret."""
        return f"{self.number}-{self.secret.fingerprint()[:_NAME_DIGITS]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The values that a rotation does not change, as they were derived from the first version."""

    measurement_secret: MeasurementSecret = field(repr=False)
    emergency_ssh_seed: SecretBytes = field(repr=False)

    @classmethod
    def of(cls, master: MasterSecret) -> Carried:
        """Return the values that are derived from ``master``, which must be a first version."""
        return cls(measurement_secret=measurement_secret(master), emergency_ssh_seed=emergency_ssh_seed(master))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDiskKey:
    """The key of one disk under one version."""

    name: str
    key: DiskKey = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterRing:
    """All versions, the leading one first: new disks get its key, and it derives the MAC key of policy records.

    Raises SITE_SECRET_MALFORMED for no version, for more than two, and for two with one number.
    """

    versions: tuple[MasterVersion, ...]
    carried: Carried = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse a ring that no rotation can produce."""
        numbers = [one.number for one in self.versions]
        if not 1 <= len(numbers) <= MAX_VERSIONS or len(set(numbers)) != len(numbers) or min(numbers) < 1:
            raise _malformed(f"one or {MAX_VERSIONS} versions, each with a number of its own")

    @classmethod
    def first(cls, master: MasterSecret) -> MasterRing:
        """Return the ring of a cluster that was never rotated."""
        return cls(versions=(MasterVersion(number=1, secret=master),), carried=Carried.of(master))

    @property
    def lead(self) -> MasterVersion:
        """The leading version."""
        return self.versions[0]

    @property
    def newest(self) -> MasterVersion:
        """The version with the highest number."""
        return max(self.versions, key=lambda one: one.number)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all versions, the leading one first."""
        return tuple(one.name for one in self.versions)

    @property
    def is_first(self) -> bool:
        """Whether the ring has only the first version, from which all other values are derived."""
        return len(self.versions) == 1 and self.lead.number == 1

    def require_first(self) -> MasterSecret:
        """Return the first version if it is the only one; raises MASTER_SECRET_ROTATED."""
        if not self.is_first:
            raise rotated()
        return self.lead.secret

    def with_successor(self, master: MasterSecret) -> MasterRing:
        """Return the ring with a new version, which does not lead yet."""
        return replace(self, versions=(*self.versions, MasterVersion(number=self.newest.number + 1, secret=master)))

    def ordered(self, names: Iterable[str]) -> MasterRing:
        """Return the ring with only these versions, the first of them leading; raises MASTER_SECRET_UNKNOWN."""
        wanted, known = tuple(names), {one.name: one for one in self.versions}
        if not wanted or not set(wanted) <= set(known):
            raise KeyServiceError(
                f"expected versions among {', '.join(known)}, got {', '.join(wanted)[:200] or 'none'}",
                reason=Reason.MASTER_SECRET_UNKNOWN,
            )
        return replace(self, versions=tuple(known[name] for name in wanted))

    def disk_keys(self, disk: DiskId) -> tuple[NamedDiskKey, ...]:
        """Return the key of one disk under each version, the leading one first."""
        return tuple(NamedDiskKey(name=one.name, key=disk_key(one.secret, disk)) for one in self.versions)

    def secrets(self) -> tuple[SecretBytes, ...]:
        """Return all secret values, for code that searches them where they must not be."""
        own = [part for one in self.versions for part in (one.secret.key, one.secret.salt)]
        return (*own, self.carried.measurement_secret, self.carried.emergency_ssh_seed)

    def to_json(self) -> bytes:
        """Return the file of the ring: Constellation's file of the leading version, with more members once rotated."""
        if self.is_first:
            return self.lead.secret.to_json()
        document = {
            **_version_members(self.lead),
            "others": [_version_members(one) for one in self.versions[1:]],
            "measurement_secret": _text(self.carried.measurement_secret),
            "emergency_ssh_seed": _text(self.carried.emergency_ssh_seed),
        }
        return json.dumps(document, sort_keys=True).encode("ascii")


def import_ring(data: bytes) -> MasterRing:
    """Return the ring of its own file or of Constellation's; raises SITE_SECRET_MALFORMED."""
    try:
        document = load_json(data)
    except ValueError:
        document = None  # no ring; the import below raises the error
    if not isinstance(document, dict) or "number" not in document:
        return MasterRing.first(import_master_secret(data))
    if set(document) != _MEMBERS or not isinstance(document["others"], list):
        raise _malformed("the members of a rotated master secret")
    try:
        return MasterRing(
            versions=tuple(_version(one) for one in (_without_rest(document), *document["others"])),
            carried=Carried(
                measurement_secret=MeasurementSecret(_value(document["measurement_secret"])),
                emergency_ssh_seed=SecretBytes(_value(document["emergency_ssh_seed"])),
            ),
        )
    except (ValueError, KeyError, TypeError):
        raise _malformed("a rotated master secret") from None  # the cause would contain the secret


def require_version_name(text: str) -> str:
    """Return ``text`` if it is the name of a version; raises OPTION_INVALID."""
    if not VERSION_NAME.fullmatch(text):
        raise KeyServiceError(
            f"expected the name of a version, as 1-9f2c1d5e9f2c1d5e, got {text[:64]!r}", reason=Reason.OPTION_INVALID
        )
    return text


def version_number(name: str) -> int:
    """Return the number in the name of a version."""
    return int(require_version_name(name).partition("-")[0])


def _without_rest(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in _VERSION_MEMBERS}


def _version(members: dict[str, Any]) -> MasterVersion:
    number = members["number"]
    if set(members) != _VERSION_MEMBERS or not isinstance(number, int) or isinstance(number, bool):
        raise _malformed("number, key and salt of a version")
    secret = MasterSecret(key=SecretBytes(_value(members["key"])), salt=SecretBytes(_value(members["salt"])))
    return MasterVersion(number=number, secret=secret)


def _version_members(version: MasterVersion) -> dict[str, Any]:
    secret = version.secret
    return {"number": version.number, "key": _text(secret.key), "salt": _text(secret.salt)}


def _value(text: str) -> bytes:
    value = base64.b64decode(text, validate=True)
    if len(value) != _VALUE_BYTES:
        raise ValueError
    return value


def _text(value: SecretBytes) -> str:
    return base64.b64encode(value.reveal()).decode("ascii")


def _malformed(expected: str) -> KeyServiceError:
    return KeyServiceError(
        f"master secret: expected {expected}, got something else", reason=Reason.SITE_SECRET_MALFORMED
    )
