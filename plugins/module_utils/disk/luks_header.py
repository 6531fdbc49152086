# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse a LUKS2 header strictly: both copies, which must be equal, with their JSON areas."""

from __future__ import annotations

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
from .luks_metadata import Metadata, read_metadata

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
