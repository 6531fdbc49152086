# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metadata of a header (LUKS2 on-disk format 1.1.1, section 3): all allowed fields, and no other.

Objects that a state disk never has are refused during parsing: objects of a re-encryption, unencrypted segments.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from ..errors import DiskError
from ..reasons import Reason

# One object of the header's JSON, field by field: unknown, missing or mistyped fields raise LUKS_HEADER_MALFORMED.

_MAX_SIZE_DIGITS = 19
_MAX_SLOTS = 32


class Fields:
    """A JSON object at a path such as ``keyslots.0.area``.

    The caller must read every member before `finish`.
    """

    def __init__(self, value: object, place: str) -> None:
        """Store a copy of ``value``, which must be an object."""
        self.place = place
        if not isinstance(value, dict):
            raise self.wrong("expected an object")
        self._members: dict[str, Any] = dict(value)

    def __contains__(self, name: str) -> bool:
        """Return whether the member ``name`` exists and was not read yet."""
        return name in self._members

    def take(self, name: str) -> object:
        """Return a member of any type and remove it from the unread members."""
        if name not in self._members:
            raise self.wrong(f"expected {name}")
        return self._members.pop(name)

    def rest(self) -> dict[str, Any]:
        """Return all unread members and mark them as read."""
        members, self._members = self._members, {}
        return members

    def finish(self) -> None:
        """Raise LUKS_HEADER_MALFORMED if any member was not read."""
        if self._members:
            raise self.wrong(f"did not expect {min(self._members)[:40]!r}")

    def text(self, name: str) -> str:
        """Return a string of at most 64 characters."""
        value = self.take(name)
        if not isinstance(value, str) or len(value) > 64:  # noqa: PLR2004
            raise self.wrong(f"expected a short text as {name}")
        return value

    def number(self, name: str) -> int:
        """Return a whole number below 2**32."""
        value = self.take(name)
        if not isinstance(value, int) or isinstance(value, bool) or value >> 32:
            raise self.wrong(f"expected a number below 2**32 as {name}")
        return value

    def size(self, name: str) -> int:
        """Return a number of bytes, which LUKS2 writes as a decimal string."""
        value = self.text(name)
        if not value.isdecimal() or len(value) > _MAX_SIZE_DIGITS or str(int(value)) != value:
            raise self.wrong(f"expected a decimal text as {name}")
        return int(value)

    def binary(self, name: str) -> bytes:
        """Return bytes from base64 in its canonical spelling."""
        value = self.text(name)
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise self.wrong(f"expected base64 as {name}") from None
        if base64.b64encode(data).decode("ascii") != value:
            raise self.wrong(f"expected base64 in its canonical spelling as {name}")
        return data

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of short strings without duplicates."""
        value = self.take(name)
        if (
            not isinstance(value, list)
            or len(value) > _MAX_SLOTS
            or not all(isinstance(one, str) and len(one) <= 64 for one in value)  # noqa: PLR2004
            or len(set(value)) != len(value)
        ):
            raise self.wrong(f"expected a list of texts as {name}")
        return tuple(value)

    def fields(self, name: str) -> Fields:
        """Return a nested object."""
        return Fields(self.take(name), f"{self.place}.{name}" if self.place else name)

    def numbered(self, name: str) -> dict[int, Fields]:
        """Return the objects of a section by number."""
        section = self.fields(name)
        members = section.rest()
        for key in members:
            number_of(key, section.place)
        return {int(key): Fields(value, f"{section.place}.{key}") for key, value in members.items()}

    def wrong(self, problem: str) -> DiskError:
        """Return the error LUKS_HEADER_MALFORMED for this object."""
        return DiskError(f"field {self.place or '(all)'}: {problem}", reason=Reason.LUKS_HEADER_MALFORMED)


def number_of(key: str, place: str) -> int:
    """Parse a number that is a key or a reference in the header; raises LUKS_HEADER_MALFORMED."""
    if not key.isdecimal() or not key.isascii() or str(int(key[:3])) != key or int(key) >= _MAX_SLOTS:
        raise DiskError(
            f"field {place}: expected a number below {_MAX_SLOTS}, got {key[:40]!r}",
            reason=Reason.LUKS_HEADER_MALFORMED,
        )
    return int(key)


_ARGON = ("argon2i", "argon2id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kdf:
    """The key derivation of a slot.

    ``cost`` is iterations, or passes of Argon2 (with ``memory_kib``, ``threads``).
    """

    type: str
    hash: str
    cost: int
    memory_kib: int
    threads: int
    salt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyslot:
    """One slot: a volume key of ``key_bytes``, split and encrypted in an area of the disk (in bytes)."""

    key_bytes: int
    stripes: int
    split_hash: str
    offset: int
    size: int
    cipher: str
    cipher_key_bytes: int
    kdf: Kdf
    priority: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One encrypted part of the disk.

    ``size`` None means up to the end, ``integrity`` "" means no integrity.
    """

    offset: int
    size: int | None
    tweak: int
    cipher: str
    sector_bytes: int
    integrity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The digest that verifies a volume key, and the slots and segments to which it applies."""

    keyslots: tuple[int, ...]
    segments: tuple[int, ...]
    type: str
    hash: str
    iterations: int
    salt: bytes
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A LUKS2 token; ``details`` are its members without type and slots."""

    type: str
    keyslots: tuple[int, ...]
    details: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The parsed JSON of a header."""

    keyslots: dict[int, Keyslot]
    segments: dict[int, Segment]
    digests: dict[int, Digest]
    tokens: dict[int, Token]
    json_bytes: int
    keyslots_bytes: int
    flags: tuple[str, ...]
    requirements: tuple[str, ...]


def read_metadata(members: dict[str, Any]) -> Metadata:
    """Parse the metadata of a header; raises LUKS_HEADER_MALFORMED and LUKS_HEADER_FOREIGN."""
    root = Fields(members, "")
    config = root.fields("config")
    metadata = Metadata(
        keyslots={number: _keyslot(one) for number, one in root.numbered("keyslots").items()},
        segments={number: _segment(one) for number, one in root.numbered("segments").items()},
        digests={number: _digest(one) for number, one in root.numbered("digests").items()},
        tokens={number: _token(one) for number, one in root.numbered("tokens").items()},
        json_bytes=config.size("json_size"),
        keyslots_bytes=config.size("keyslots_size"),
        flags=config.texts("flags") if "flags" in config else (),
        requirements=_requirements(config),
    )
    config.finish()
    root.finish()
    return metadata


def _requirements(config: Fields) -> tuple[str, ...]:
    if "requirements" not in config:
        return ()
    requirements = config.fields("requirements")
    names = requirements.texts("mandatory")
    requirements.finish()
    return names


def _keyslot(fields: Fields) -> Keyslot:
    if (kind := fields.text("type")) != "luks2":
        if kind == "reencrypt":
            raise _reencryption(fields, "a key slot of a re-encryption")
        raise fields.wrong(f"expected a key slot of type luks2, got {kind!r}")
    split, area = fields.fields("af"), fields.fields("area")
    if (split.text("type"), area.text("type")) != ("luks1", "raw"):
        raise fields.wrong("expected the types luks1 (af) and raw (area)")
    slot = Keyslot(
        key_bytes=fields.number("key_size"),
        stripes=split.number("stripes"),
        split_hash=split.text("hash"),
        offset=area.size("offset"),
        size=area.size("size"),
        cipher=area.text("encryption"),
        cipher_key_bytes=area.number("key_size"),
        kdf=_kdf(fields.fields("kdf")),
        priority=fields.number("priority") if "priority" in fields else None,
    )
    for one in (split, area, fields):
        one.finish()
    return slot


def _kdf(fields: Fields) -> Kdf:
    kind = fields.text("type")
    if kind not in {"pbkdf2", *_ARGON}:
        raise fields.wrong(f"expected a known key derivation, got {kind!r}")
    argon = kind in _ARGON
    kdf = Kdf(
        type=kind,
        hash="" if argon else fields.text("hash"),
        cost=fields.number("time" if argon else "iterations"),
        memory_kib=fields.number("memory") if argon else 0,
        threads=fields.number("cpus") if argon else 1,
        salt=fields.binary("salt"),
    )
    fields.finish()
    return kdf


def _segment(fields: Fields) -> Segment:
    if "flags" in fields:
        raise _reencryption(fields, "a segment with flags")
    if (kind := fields.text("type")) != "crypt":
        raise DiskError(
            f"{fields.place}: expected a segment of type crypt, got {kind!r}", reason=Reason.LUKS_HEADER_FOREIGN
        )
    size = fields.take("size")
    if size != "dynamic":
        raise DiskError(
            f"{fields.place}: expected a segment up to the end of the disk, got a part",
            reason=Reason.LUKS_HEADER_FOREIGN,
        )
    segment = Segment(
        offset=fields.size("offset"),
        size=None,
        tweak=fields.size("iv_tweak"),
        cipher=fields.text("encryption"),
        sector_bytes=fields.number("sector_size"),
        integrity=_integrity(fields.fields("integrity")) if "integrity" in fields else "",
    )
    fields.finish()
    return segment


def _integrity(fields: Fields) -> str:
    kind = fields.text("type")
    journal = {fields.text("journal_encryption"), fields.text("journal_integrity")}
    fields.finish()
    if journal != {"none"}:
        raise DiskError(
            f"{fields.place}: expected integrity by a plain journal, got {journal}", reason=Reason.LUKS_HEADER_FOREIGN
        )
    return kind


def _digest(fields: Fields) -> Digest:
    digest = Digest(
        keyslots=_references(fields, "keyslots"),
        segments=_references(fields, "segments"),
        type=fields.text("type"),
        hash=fields.text("hash"),
        iterations=fields.number("iterations"),
        salt=fields.binary("salt"),
        value=fields.binary("digest"),
    )
    fields.finish()
    return digest


def _token(fields: Fields) -> Token:
    return Token(type=fields.text("type"), keyslots=_references(fields, "keyslots"), details=fields.rest())


def _references(fields: Fields, name: str) -> tuple[int, ...]:
    return tuple(sorted(number_of(one, f"{fields.place}.{name}") for one in fields.texts(name)))


def _reencryption(fields: Fields, found: str) -> DiskError:
    return DiskError(f"{fields.place}: expected no re-encryption, got {found}", reason=Reason.LUKS_HEADER_FOREIGN)
