# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole header: both copies, which must say the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ..errors import DiskError
from ..reasons import Reason
from .binary import HEADER_BYTES, BinaryHeader, read_copy
from .metadata import Metadata, read_metadata
from .strict_json import load_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a header says of itself, not judged yet; ``digest`` is the SHA-256 of the bytes that were read."""

    sequence: int
    label: str
    uuid: str
    subsystem: str
    metadata: Metadata
    digest: bytes

    @property
    def total_bytes(self) -> int:
        """How much of the disk's begin is header and key slots: what a copy must hold to be opened from."""
        return 2 * HEADER_BYTES + self.metadata.keyslots_bytes


def read_header(data: bytes) -> Header:
    """Return the header in the first `AREA_BYTES` of a disk or of a copy of its header; more bytes are not looked at.

    1. Each copy is whole, in its place and has its checksum (`read_copy`). 2. Both say the same, bit by bit where they
    may (LUKS_COPIES_DIFFER). 3. The JSON has one meaning (`load_json`) and only known fields (`read_metadata`).
    A disk whose power was cut while its header was written has one good copy, and is refused like any other.
    """
    first = read_copy(data[:HEADER_BYTES], second=False)  # 1
    second = read_copy(data[HEADER_BYTES : 2 * HEADER_BYTES], second=True)
    _require_same(first, second)  # 2
    metadata = read_metadata(load_json(first.text))  # 3
    if metadata.json_bytes != HEADER_BYTES - 4096:
        raise DiskError(
            f"expected a JSON area of {HEADER_BYTES - 4096} bytes, it says {metadata.json_bytes}",
            reason=Reason.LUKS_LAYOUT,
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
        raise DiskError(f"expected two equal copies, got {shown}", reason=Reason.LUKS_COPIES_DIFFER)
