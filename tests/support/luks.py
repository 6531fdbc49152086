# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""LUKS headers for tests: written by the real cryptsetup, and with one change."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

COPY = 16384
STATE_DISK = "state-disk"


def vector(name: str = STATE_DISK) -> bytes:
    """Return a recorded header, both copies."""
    return (ROOT / "tests" / "vectors" / "luks" / f"{name}.bin").read_bytes()


def metadata(data: bytes) -> dict[str, Any]:
    """Return the JSON of the first copy, parsed only with the standard library."""
    members: dict[str, Any] = json.loads(data[4096:COPY].rstrip(b"\0"))
    return members


def sealed(data: bytes, *, copies: tuple[int, ...] = (0, 1)) -> bytes:
    """Return ``data`` with valid checksums, which an attacker can compute too."""
    parts = [bytearray(data[:COPY]), bytearray(data[COPY : 2 * COPY])]
    for number in copies:
        parts[number][448:512] = bytes(64)
        parts[number][448:480] = hashlib.sha256(parts[number]).digest()
    return bytes(parts[0] + parts[1])


def with_text(data: bytes, text: bytes, *, copies: tuple[int, ...] = (0, 1)) -> bytes:
    """Return ``data`` with another text in its JSON area and valid checksums."""
    parts = [data[:COPY], data[COPY : 2 * COPY]]
    for number in copies:
        parts[number] = parts[number][:4096] + text.ljust(COPY - 4096, b"\0")
    return sealed(b"".join(parts), copies=copies)


def with_json(data: bytes, edit: Callable[[dict[str, Any]], object], *, copies: tuple[int, ...] = (0, 1)) -> bytes:
    """Return ``data`` with its JSON changed by ``edit`` and valid checksums."""
    members = copy.deepcopy(metadata(data))
    edit(members)
    return with_text(data, json.dumps(members, separators=(",", ":")).encode("ascii"), copies=copies)


def with_bytes(data: bytes, at: int, new: bytes, *, copies: tuple[int, ...] = (0, 1)) -> bytes:
    """Return ``data`` with other bytes at an offset of each copy and valid checksums."""
    parts = [data[:COPY], data[COPY : 2 * COPY]]
    for number in copies:
        parts[number] = parts[number][:at] + new + parts[number][at + len(new) :]
    return sealed(b"".join(parts), copies=copies)


def with_sequence(data: bytes, sequence: int, *, copies: tuple[int, ...] = (0, 1)) -> bytes:
    """Return ``data`` with another sequence id."""
    return with_bytes(data, 16, struct.pack(">Q", sequence), copies=copies)
