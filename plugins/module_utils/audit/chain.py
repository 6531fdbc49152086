# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records and their chain. Pure.

A record is one line of JSON in ASCII, with sorted names, so whatever bytes a name holds, a line stays one record.
Its digest is SHA-256 over the label and the line without its end; the next record carries it as ``previous``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ..atls import label, length_prefixed
from ..errors import SystemFault
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

GENESIS = bytes(32)
MAX_RECORD_BYTES = 65_536

_END = 1 << 63
_MAX_TEXT = 4000
_RECORD = "audit-record"
_HEAD = "audit-head"

Value: TypeAlias = "str | float | bool | None"


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a log after one of its records: everything before is fixed by the 32 bytes of ``sha256``."""

    log: str
    sequence: int
    sha256: bytes

    def digest(self) -> bytes:
        """Return the 32 bytes that a TPM signs."""
        return hashlib.sha256(
            length_prefixed(label(_HEAD), self.log.encode(), self.sequence.to_bytes(8, "big"), self.sha256)
        ).digest()


@dataclass(frozen=True, slots=True)
class Rotation:
    """With which record a log begins once its older files are gone, and the digest of the record before that one."""

    first: int
    sha256: bytes


def render(fields: Mapping[str, object], *, sequence: int, previous: bytes) -> bytes:
    """Return the line of a record, without its end."""
    clean = {name: _clean(value) for name, value in fields.items()}
    return json.dumps(
        {**clean, "sequence": sequence, "previous": previous.hex()}, sort_keys=True, separators=(",", ":")
    ).encode("ascii")


def digest_of(line: bytes) -> bytes:
    """Return the digest of a line, 32 bytes."""
    return hashlib.sha256(length_prefixed(label(_RECORD), line)).digest()


def parse_record(line: bytes) -> dict[str, Any]:
    """Return the record of a line; raises AUDIT_MALFORMED."""
    try:
        record = json.loads(line) if len(line) <= MAX_RECORD_BYTES else None
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not _is_flat(record) or not _is_numbered(record):
        raise SystemFault(f"expected an audit record, got {line[:80]!r}", reason=Reason.AUDIT_MALFORMED)
    return record


def is_sequence(value: object) -> bool:
    """Return whether ``value`` is the number of a record."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _END


def _is_numbered(record: dict[str, Any]) -> bool:
    return is_sequence(record.get("sequence")) and isinstance(record.get("previous"), str)


def _is_flat(record: dict[str, Any]) -> bool:
    """Return whether it holds single values alone, as `render` writes them."""
    return not any(isinstance(value, dict | list) for value in record.values())


def _clean(value: object) -> Value:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}… ({len(value)} characters)"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return f"<{type(value).__name__}>"
