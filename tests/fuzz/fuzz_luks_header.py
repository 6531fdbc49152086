# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The begin of a disk, as it is: the binary header and what its checksums let through."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_header import read_header
from ansible_collections.attested.kubernetes.tests.support.luks import COPY, sealed, vector

MAX_BYTES = 2 * COPY


def seeds() -> list[bytes]:
    return [vector(name) for name in ("state-disk", "constellation-plain")]


def one_input(data: bytes) -> None:
    whole = data.ljust(MAX_BYTES, b"\0")[:MAX_BYTES]
    header = read_header(sealed(whole) if len(data) == MAX_BYTES else data)
    assert header.total_bytes >= MAX_BYTES
