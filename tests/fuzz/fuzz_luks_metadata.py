# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The header of a state disk: JSON with right checksums in both copies, so that mutations get past them."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_check import (
    CONSTELLATION_DISK,
    STATE_DISK,
    verify_header,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_header import read_header
from ansible_collections.attested.kubernetes.tests.support.luks import COPY, vector, with_text

GOOD = vector()
MAX_BYTES = COPY - 4096


def seeds() -> list[bytes]:
    names = ("state-disk", "state-disk-fresh", "constellation", "default")
    return [vector(name)[4096:COPY].rstrip(b"\0") for name in names]


def one_input(data: bytes) -> None:
    header = read_header(with_text(GOOD, data[:MAX_BYTES]))
    shape = STATE_DISK if STATE_DISK.token in str(header.metadata.tokens) else CONSTELLATION_DISK
    judged = verify_header(header, shape, uuid=header.uuid)
    assert judged.slots == (0,)
    assert header.metadata.segments[0].cipher == "aes-xts-plain64"
