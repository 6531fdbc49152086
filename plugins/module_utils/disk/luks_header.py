# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse a LUKS2 header strictly: both copies, which must be equal, with their JSON areas."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import struct
from dataclasses import dataclass
from typing import Any

from ..core.documents import require_shallow, unique_members
from ..errors import DiskError
from ..reasons import Reason

# The metadata of a header (LUKS2 on-disk format 1.1.1, section 3): all allowed fields, and no other.
#
# Objects that a state disk never has are refused during parsing: objects of a re-encryption, unencrypted segments.

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


# The JSON of a header: only one spelling is accepted, so that no other parser can understand it differently.
#
# cryptsetup's parser json-c uses the last of two equal keys, cuts strings at an escaped NUL, and allows comments. Here
# a text is accepted only if serialising the parsed value gives the same bytes.

MAX_DEPTH = 8
"""The maximum nesting of objects and lists; cryptsetup's own headers have four levels."""
_MAX_DIGITS = 10


def load_json(text: bytes) -> dict[str, Any]:
    """Parse the JSON ``text`` in cryptsetup's spelling and return the object.

    Raises LUKS_HEADER_MALFORMED.

    1. The text is ASCII without escapes (except an escaped slash, which cryptsetup before 2.4 wrote), and not nested
    too deep. 2. It is JSON without fractions, long numbers or duplicate keys.
    3. It is an object whose compact spelling is ``text`` again.
    """
    try:
        plain = text.decode("ascii").replace("\\/", "/")
    except UnicodeDecodeError:
        raise _malformed("expected ASCII") from None
    if "\\" in plain:  # 1
        raise _malformed("expected no escaped letters")
    try:
        require_shallow(plain, levels=MAX_DEPTH)
        value = json.loads(  # 2
            plain, object_pairs_hook=unique_members, parse_int=_integer, parse_float=_refuse, parse_constant=_refuse
        )
    except (ValueError, RecursionError) as error:
        raise _malformed(str(error)) from error
    if not isinstance(value, dict) or json.dumps(value, separators=(",", ":")) != plain:  # 3
        raise _malformed("expected an object in its compact spelling")
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS or digits.startswith("-"):
        raise ValueError(f"expected a number of at most {_MAX_DIGITS} digits")
    return int(digits)


def _refuse(text: str) -> Any:
    raise ValueError(f"expected whole numbers only, got {text[:20]}")


def _malformed(problem: str) -> DiskError:
    return DiskError(f"the header's JSON: {problem}", reason=Reason.LUKS_HEADER_MALFORMED)


# The binary part of a LUKS2 header (LUKS2 on-disk format 1.1.1, section 2.1): one copy, its bounds, its checksum.

BINARY_BYTES = 4096
HEADER_BYTES = 16384
"""The size of one copy (binary part and JSON area): cryptsetup's default, and the only accepted size."""
AREA_BYTES = 2 * HEADER_BYTES
"""The size of both copies, which `read_header` needs."""

_MAGICS = (b"LUKS\xba\xbe", b"SKUL\xba\xbe")
_NAMES = ("first", "second")
_VERSION = 2
_FIELDS = struct.Struct(">6sHQQ48s32s64s40s48sQ184s64s")
_CHECKSUM_AT = 448
_CHECKSUM_END = 512
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryHeader:
    """One copy: the fields of its binary part, and the text of its JSON area."""

    sequence: int
    label: str
    uuid: str
    subsystem: str
    text: bytes


def read_copy(data: bytes, *, second: bool) -> BinaryHeader:
    """Parse one copy of a header from the first `HEADER_BYTES` of ``data``.

    1. The copy is complete (LUKS_DAMAGED). 2. It is LUKS2 (LUKS_MISSING). 3. It has the required size and offset
    (LUKS_HEADER_MALFORMED). 4. Its checksum is SHA-256 and correct (LUKS_DAMAGED). 5. Unused bytes are zero, and
    strings are printable (LUKS_HEADER_MALFORMED). 6. The JSON area is one text and zeros (LUKS_HEADER_MALFORMED).
    """
    name = _NAMES[second]
    if len(data) < HEADER_BYTES:  # 1
        raise _error(f"expected {HEADER_BYTES} bytes of the {name} copy, got {len(data)}", Reason.LUKS_DAMAGED)
    data = data[:HEADER_BYTES]
    magic, version, size, sequence, label, algorithm, _salt, uuid, subsystem, offset, padding, checksum = (
        _FIELDS.unpack_from(data)
    )
    if magic != _MAGICS[second] or version != _VERSION:  # 2
        raise _error(f"expected a LUKS2 header as {name} copy, got {magic.hex()} {version}", Reason.LUKS_MISSING)
    _require_place(size, offset, second=second)  # 3
    _require_checksum(data, algorithm, checksum, name)  # 4
    if any(padding) or any(data[_CHECKSUM_END:BINARY_BYTES]):  # 5
        raise _error(f"expected zeros where the {name} copy holds nothing", Reason.LUKS_HEADER_MALFORMED)
    return BinaryHeader(
        sequence=sequence,
        label=_text(label, "label"),
        uuid=_uuid(uuid),
        subsystem=_text(subsystem, "subsystem"),
        text=_json_text(data[BINARY_BYTES:], name),  # 6
    )


def _require_place(size: int, offset: int, *, second: bool) -> None:
    if size > HEADER_BYTES:
        raise _error(f"expected a header of {HEADER_BYTES} bytes, got {size}", Reason.LUKS_HEADER_MALFORMED)
    expected = HEADER_BYTES if second else 0
    if size != HEADER_BYTES or offset != expected:
        raise _error(
            f"expected {HEADER_BYTES} bytes at {expected}, got {size} bytes at {offset}",
            Reason.LUKS_HEADER_MALFORMED,
        )


def _require_checksum(data: bytes, algorithm: bytes, checksum: bytes, name: str) -> None:
    if algorithm.rstrip(b"\0") != b"sha256":
        raise _error(f"expected sha256 as checksum, got {algorithm.rstrip(bytes(1))!r}", Reason.LUKS_DAMAGED)
    zeroed = data[:_CHECKSUM_AT] + bytes(_CHECKSUM_END - _CHECKSUM_AT) + data[_CHECKSUM_END:]
    expected = hashlib.sha256(zeroed).digest().ljust(len(checksum), b"\0")
    if not hmac.compare_digest(expected, checksum):
        raise _error(f"expected the checksum of the {name} copy's bytes, got another one", Reason.LUKS_DAMAGED)


def _text(field: bytes, name: str) -> str:
    text, _zero, rest = field.partition(b"\0")
    if len(text) == len(field) or any(rest) or not (text.isascii() and text.decode("ascii").isprintable()):
        raise _error(f"expected a printable text and zeros as {name}, got {field!r}", Reason.LUKS_HEADER_MALFORMED)
    return text.decode("ascii")


def _uuid(field: bytes) -> str:
    text = _text(field, "UUID")
    if not _UUID.fullmatch(text):
        raise _error(f"expected a lower-case UUID, got {text!r}", Reason.LUKS_HEADER_MALFORMED)
    return text


def _json_text(area: bytes, name: str) -> bytes:
    text, _zero, rest = area.partition(b"\0")
    if len(text) == len(area) or any(rest):
        raise _error(f"expected one text and zeros in the JSON area of the {name} copy", Reason.LUKS_HEADER_MALFORMED)
    return text


def _error(message: str, reason: Reason) -> DiskError:
    return DiskError(message, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A parsed header that is not verified yet; ``digest`` is the SHA-256 of its bytes."""

    sequence: int
    label: str
    uuid: str
    subsystem: str
    metadata: Metadata
    digest: bytes

    @property
    def total_bytes(self) -> int:
        """The size of header and key slots at the start of the disk; a copy to open from must hold all of it."""
        return 2 * HEADER_BYTES + self.metadata.keyslots_bytes


def read_header(data: bytes) -> Header:
    """Parse the header in the first `AREA_BYTES` of a disk or of a copy of its header.

    Further bytes of ``data`` are ignored.

    1. Each copy is complete, at its offset and has a correct checksum (`read_copy`). 2. Both copies have equal fields
    (LUKS_DAMAGED). 3. The JSON has one meaning (`load_json`) and only known fields (`read_metadata`).
    A power cut during a write of the header can leave one good copy; such a disk is refused too.
    """
    first = read_copy(data[:HEADER_BYTES], second=False)  # 1
    second = read_copy(data[HEADER_BYTES : 2 * HEADER_BYTES], second=True)
    _require_same(first, second)  # 2
    metadata = read_metadata(load_json(first.text))  # 3
    if metadata.json_bytes != HEADER_BYTES - 4096:
        raise DiskError(
            f"layout: expected a JSON area of {HEADER_BYTES - 4096} bytes, got {metadata.json_bytes}",
            reason=Reason.LUKS_HEADER_FOREIGN,
        )
    return Header(
        sequence=first.sequence,
        label=first.label,
        uuid=first.uuid,
        subsystem=first.subsystem,
        metadata=metadata,
        digest=hashlib.sha256(data[: 2 * HEADER_BYTES]).digest(),
    )


def _require_same(first: BinaryHeader, second: BinaryHeader) -> None:
    if first != second:
        differing = [name for name in BinaryHeader.__slots__ if getattr(first, name) != getattr(second, name)]
        shown = f"sequence {first.sequence} and {second.sequence}; they differ in {', '.join(differing)}"
        raise DiskError(f"expected two equal copies, got {shown}", reason=Reason.LUKS_DAMAGED)
