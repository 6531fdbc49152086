# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock's record as bytes: one JSON text sequence (RFC 7464), the form of systemd's own measurement log."""

from __future__ import annotations

import hashlib
import json
import time

from ..attestation.eventlog import LOCK_KIND

LOG_LIMIT = 1 << 20
_CONTENT_TYPE = "attested"
_VERSION = 1
_SEPARATOR = b"\x1e"
_BANKS = ("sha256", "sha384", "sha512")


def appended(log: bytes, *, register: int, cluster_id: bytes) -> bytes:
    """Return ``log`` with the record of a lock to ``cluster_id`` at its end.

    A record of a lock that is there already never happened (the caller has read the register) and is left out.
    """
    kept = [part for part in log.split(_SEPARATOR)[1:] if not _is_lock(part)]
    return b"".join(_SEPARATOR + part for part in (*kept, _record(register, cluster_id)))


def _record(register: int, cluster_id: bytes) -> bytes:
    body = {
        "pcr": register,
        "digests": [{"hashAlg": bank, "digest": hashlib.new(bank, cluster_id).hexdigest()} for bank in _BANKS],
        "content_type": _CONTENT_TYPE,
        "content": {
            "eventType": LOCK_KIND,
            "version": _VERSION,
            "clusterId": cluster_id.hex(),
            "timestamp": time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000,
        },
    }
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def _is_lock(part: bytes) -> bool:
    content = json.loads(part).get("content")
    return isinstance(content, dict) and content.get("eventType") == LOCK_KIND
