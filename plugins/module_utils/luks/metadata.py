# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metadata of a header (LUKS2 on-disk format 1.1.1, section 3): every field that may be there, and no other.

What a state disk never has is refused as soon as it is met: objects of a re-encryption, segments in clear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import DiskError
from ..reasons import Reason
from .fields import Fields, number_of

_ARGON = ("argon2i", "argon2id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kdf:
    """How a key slot stretches its key; ``cost`` is iterations, or passes of Argon2 (``memory_kib``, ``threads``)."""

    type: str
    hash: str
    cost: int
    memory_kib: int
    threads: int
    salt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyslot:
    """One slot: a volume key of ``key_bytes``, split and encrypted in an area of the disk (bytes from its begin)."""

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
    """One encrypted part of the disk; ``size`` is None up to its end, ``integrity`` "" without."""

    offset: int
    size: int | None
    tweak: int
    cipher: str
    sector_bytes: int
    integrity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What proves a volume key, and which slots and segments it stands for."""

    keyslots: tuple[int, ...]
    segments: tuple[int, ...]
    type: str
    hash: str
    iterations: int
    salt: bytes
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A note of a program in the header; ``details`` is all but its type and slots."""

    type: str
    keyslots: tuple[int, ...]
    details: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """All that the JSON of a header says."""

    keyslots: dict[int, Keyslot]
    segments: dict[int, Segment]
    digests: dict[int, Digest]
    tokens: dict[int, Token]
    json_bytes: int
    keyslots_bytes: int
    flags: tuple[str, ...]
    requirements: tuple[str, ...]


def read_metadata(members: dict[str, Any]) -> Metadata:
    """Return what the JSON says; raises LUKS_FIELD, LUKS_REENCRYPTION, LUKS_SEGMENTS, LUKS_INTEGRITY."""
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
        raise DiskError(f"{fields.place}: expected type crypt, got {kind!r}", reason=Reason.LUKS_SEGMENTS)
    size = fields.take("size")
    if size != "dynamic":
        raise DiskError(f"{fields.place}: expected all of the disk, got a part", reason=Reason.LUKS_SEGMENTS)
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
        raise DiskError(f"{fields.place}: expected a plain journal, got {journal}", reason=Reason.LUKS_INTEGRITY)
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
    return DiskError(f"{fields.place}: expected no re-encryption, got {found}", reason=Reason.LUKS_REENCRYPTION)
