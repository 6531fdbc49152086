# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detect a disk rollback: a record inside the volume must agree with a counter of the TPM. Pure.

Each unlock writes the next number into the volume and then increments the counter. If the whole disk or the file is
rolled back, its number is below the counter. After a power cut between the two writes the record may be one ahead,
which is accepted.

A rollback within one boot, to a state after the unlock of that boot, is not detected.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Protocol

from ..core.documents import load_json
from ..errors import AttestedError, DiskError
from ..reasons import Reason

RECORD_VERSION = 1
NAMED_VERSION = 2
"""The version of a record that names the version of the master secret."""
MAX_RECORD_BYTES = 1024
_NAME = re.compile(r"[0-9]{1,6}-[0-9a-f]{16}")
_SHA256 = re.compile(r"(?:[0-9a-f]{64})?")
_VERSIONS = (RECORD_VERSION, NAMED_VERSION)
_NUMBERS = range(1, 1 << 63)


class Counter(Protocol):
    """A monotonic counter outside of the disk: `tpm.NvCounter`."""

    def define(self) -> int:
        """Return the value; make the counter if it does not exist."""

    def read(self) -> int | None:
        """Return the value, or None if there is no counter."""

    def increment(self) -> int:
        """Add one and return the new value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record in the volume: the number of the last unlock, and the header's SHA-256 (hex) then.

    ``header`` is "" between the first mount and the first counted unlock, and while the key of the disk is exchanged.
    In that case the counter must agree exactly. ``key`` names the version of the master secret from which the key of
    the header's only slot is derived, "" if unknown.
    """

    generation: int
    header: str
    key: str = ""


def render_record(record: Record) -> bytes:
    """Return the content of the file."""
    members = {"version": RECORD_VERSION, "generation": record.generation, "header": record.header}
    if record.key:
        members |= {"version": NAMED_VERSION, "key": record.key}
    return json.dumps(members, indent=2).encode("ascii") + b"\n"


def parse_record(data: bytes) -> Record:
    """Return the record in ``data``; raises STATE_DISK_RECORD."""
    try:
        members = load_json(data, limit=MAX_RECORD_BYTES)
    except ValueError as error:
        raise _malformed(f"not JSON ({error})") from error
    if not isinstance(members, dict):
        raise _malformed("something else")
    named = {"key"} if members.get("version") == NAMED_VERSION else set()
    if set(members) != {"version", "generation", "header"} | named or members["version"] not in _VERSIONS:
        raise _malformed("other members or another version")
    generation, header, key = members["generation"], members["header"], members.get("key", "")
    if not isinstance(generation, int) or isinstance(generation, bool) or generation not in _NUMBERS:
        raise _malformed(f"the generation {str(generation)[:40]}")
    if not isinstance(header, str) or not _SHA256.fullmatch(header):
        raise _malformed("a header that is no SHA-256")
    if named and not (isinstance(key, str) and _NAME.fullmatch(key)):
        raise _malformed("a key without the name of a version")
    return Record(generation=generation, header=header, key=key)


def verify_record(record: Record | None, *, counter: int | None, header: str) -> Record:
    """Verify that the disk was not rolled back and return the record.

    ``header`` is the SHA-256 (hex) of the disk's header.

    1. The counter exists. STATE_DISK_COUNTER_LOST
    2. The record exists. STATE_DISK_RECORD
    3. The record is not behind the counter. STATE_DISK_ROLLED_BACK
    4. The record is at most one ahead of the counter. STATE_DISK_COUNTER_LOST
    5. The header is that of the last unlock. A record without a header must agree with the counter exactly.
       STATE_DISK_HEADER_CHANGED
    """
    if counter is None:  # 1
        raise DiskError("expected a counter in the TPM, found none", reason=Reason.STATE_DISK_COUNTER_LOST)
    if record is None:  # 2
        raise DiskError("expected a record of unlocks in the volume, found none", reason=Reason.STATE_DISK_RECORD)
    found = f"the volume has {record.generation}, the counter {counter}"
    if record.generation < counter:  # 3
        raise DiskError(f"expected the state of the last unlock: {found}", reason=Reason.STATE_DISK_ROLLED_BACK)
    if record.generation > counter + 1:  # 4
        raise DiskError(f"expected a counter at the last unlock: {found}", reason=Reason.STATE_DISK_COUNTER_LOST)
    if record.header != header and (record.header or record.generation != counter):  # 5
        raise DiskError(
            f"expected the header of the last unlock, {record.header[:16] or 'none'}, got {header[:16]}",
            reason=Reason.STATE_DISK_HEADER_CHANGED,
        )
    return record


def _malformed(found: str) -> AttestedError:
    return DiskError(f"expected a record of unlocks in the volume, found {found}", reason=Reason.STATE_DISK_RECORD)
