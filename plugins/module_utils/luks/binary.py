# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The binary part of a LUKS2 header (LUKS2 on-disk format 1.1.1, section 2.1): one copy, its bounds, its checksum."""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from dataclasses import dataclass

from ..errors import DiskError
from ..reasons import Reason

BINARY_BYTES = 4096
HEADER_BYTES = 16384
"""One copy, binary part and JSON area: the size that cryptsetup makes, and the only one that is read."""
AREA_BYTES = 2 * HEADER_BYTES
"""Both copies: what `read_header` needs of a disk."""

_MAGICS = (b"LUKS\xba\xbe", b"SKUL\xba\xbe")
_NAMES = ("first", "second")
_VERSION = 2
_FIELDS = struct.Struct(">6sHQQ48s32s64s40s48sQ184s64s")
_CHECKSUM_AT = 448
_CHECKSUM_END = 512
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryHeader:
    """One copy: what its binary part says, and the text of its JSON area."""

    sequence: int
    label: str
    uuid: str
    subsystem: str
    text: bytes


def read_copy(data: bytes, *, second: bool) -> BinaryHeader:
    """Return one copy of a header from the first `HEADER_BYTES` of ``data``.

    1. It is there as a whole (LUKS_TRUNCATED). 2. It is LUKS2 (LUKS_MISSING). 3. It has our size and stands in its
    place (LUKS_TOO_LARGE, LUKS_HEADER_MALFORMED). 4. Its checksum is SHA-256 and right (LUKS_CHECKSUM). 5. What is not
    used is zero, and texts are texts (LUKS_HEADER_MALFORMED). 6. The JSON area is one text and zeros
    (LUKS_JSON_MALFORMED).
    """
    name = _NAMES[second]
    if len(data) < HEADER_BYTES:  # 1
        raise _error(f"expected {HEADER_BYTES} bytes of the {name} copy, got {len(data)}", Reason.LUKS_TRUNCATED)
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
        raise _error(f"expected a header of {HEADER_BYTES} bytes, got {size}", Reason.LUKS_TOO_LARGE)
    expected = HEADER_BYTES if second else 0
    if size != HEADER_BYTES or offset != expected:
        raise _error(
            f"expected {HEADER_BYTES} bytes at {expected}, the header says {size} at {offset}",
            Reason.LUKS_HEADER_MALFORMED,
        )


def _require_checksum(data: bytes, algorithm: bytes, checksum: bytes, name: str) -> None:
    if algorithm.rstrip(b"\0") != b"sha256":
        raise _error(f"expected sha256 as checksum, got {algorithm.rstrip(bytes(1))!r}", Reason.LUKS_CHECKSUM)
    zeroed = data[:_CHECKSUM_AT] + bytes(_CHECKSUM_END - _CHECKSUM_AT) + data[_CHECKSUM_END:]
    expected = hashlib.sha256(zeroed).digest().ljust(len(checksum), b"\0")
    if not hmac.compare_digest(expected, checksum):
        raise _error(f"the checksum of the {name} copy is not that of its bytes", Reason.LUKS_CHECKSUM)


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
        raise _error(f"expected one text and zeros in the JSON area of the {name} copy", Reason.LUKS_JSON_MALFORMED)
    return text


def _error(message: str, reason: Reason) -> DiskError:
    return DiskError(message, reason=reason)
