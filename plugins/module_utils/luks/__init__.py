# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The header of a state disk, read by ourselves: bytes in, a judged header or one reason code out. Pure.

Utilities of this package are private to the collection.
"""

from __future__ import annotations

from .binary import AREA_BYTES, HEADER_BYTES
from .header import Header, read_header
from .judge import JudgedHeader, judge_header
from .metadata import Digest, Keyslot, Metadata, Segment, Token
from .shapes import (
    CIPHER,
    CONSTELLATION_DISK,
    SECTOR_BYTES,
    STATE_DISK,
    STATE_TOKEN,
    XTS_KEY_BYTES,
    DiskShape,
    KdfBounds,
    state_token,
)

__all__ = [
    "AREA_BYTES",
    "CIPHER",
    "CONSTELLATION_DISK",
    "HEADER_BYTES",
    "SECTOR_BYTES",
    "STATE_DISK",
    "STATE_TOKEN",
    "XTS_KEY_BYTES",
    "Digest",
    "DiskShape",
    "Header",
    "JudgedHeader",
    "KdfBounds",
    "Keyslot",
    "Metadata",
    "Segment",
    "Token",
    "judge_header",
    "read_header",
    "state_token",
]
