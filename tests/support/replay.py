# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replay a recorded boot into a TPM, like the firmware and systemd of that machine: with PCR_Extend."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Protocol

    class Registers(Protocol):
        """The target: a `Tpm`, or a fake."""

        def pcr_extend(self, index: int, digests: Mapping[int, bytes]) -> None:
            """Extend register ``index`` by one digest per bank."""


_NO_ACTION = 3
_SHA256 = 0x000B
_SIZES = {0x0004: 20, 0x000B: 32, 0x000C: 48, 0x000D: 64}
_USERSPACE_SEPARATOR = b"\x1e"


def firmware_digests(log: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (register, SHA-256 digest) of each extended event (TCG PC Client firmware profile, 10.2.2).

    Only for the recorded logs; independent of the product's strict parser, which must not verify itself.
    """
    # The first event is TCG_PCR_EVENT with a SHA-1 digest; its data says which digests the others carry.
    offset = 32 + int.from_bytes(log[28:32], "little")
    while offset < len(log):
        index, kind, count = (int.from_bytes(log[offset + 4 * n : offset + 4 * n + 4], "little") for n in range(3))
        offset += 12
        digests = {}
        for _unused in range(count):
            alg = int.from_bytes(log[offset : offset + 2], "little")
            digests[alg] = log[offset + 2 : offset + 2 + _SIZES[alg]]
            offset += 2 + _SIZES[alg]
        offset += 4 + int.from_bytes(log[offset : offset + 4], "little")
        if kind != _NO_ACTION:
            yield index, digests[_SHA256]


def userspace_digests(log: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (register, SHA-256 digest) of each record of systemd's log (JSON-seq, RFC 7464)."""
    for record in filter(bytes.strip, log.split(_USERSPACE_SEPARATOR)):
        event = json.loads(record)
        for digest in event["digests"]:
            if digest["hashAlg"] == "sha256":
                yield event["pcr"], bytes.fromhex(digest["digest"])


def replay(tpm: Registers, *, firmware: bytes, userspace: bytes = b"") -> int:
    """Extend ``tpm`` by all events of both logs, in order; return their number."""
    count = 0
    for source in (firmware_digests(firmware), userspace_digests(userspace)):
        for index, digest in source:
            tpm.pcr_extend(index, {_SHA256: digest})
            count += 1
    return count
