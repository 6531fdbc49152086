# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock's record as bytes: one JSON text sequence (RFC 7464), the form of systemd's own measurement log."""

from __future__ import annotations

import hashlib
import json
import time

from ..attestation.eventlog import LOCK_KIND, SOURCE_KIND

LOG_LIMIT = 1 << 20
_CONTENT_TYPE = "attested"
_VERSION = 1
_SEPARATOR = b"\x1e"
_BANKS = ("sha256", "sha384", "sha512")


def with_lock(log: bytes, *, register: int, cluster_id: bytes, happened: int = 0) -> bytes:
    """Return ``log`` with the record of a lock to ``cluster_id`` behind the ``happened`` records that are extended."""
    content = {"eventType": LOCK_KIND, "version": _VERSION, "clusterId": cluster_id.hex()}
    return _appended(log, _record(register, cluster_id, content), register=register, happened=happened)


def with_source(log: bytes, *, register: int, text: str, happened: int = 0) -> bytes:
    """Return ``log`` with the record of the site's ``text`` behind the ``happened`` records that are extended."""
    content = {"eventType": SOURCE_KIND, "version": _VERSION, "string": text}
    return _appended(log, _record(register, text.encode(), content), register=register, happened=happened)


def _appended(log: bytes, record: bytes, *, register: int, happened: int) -> bytes:
    """Leave out what was written for ``register`` and never extended: the caller has read the register."""
    parts = log.split(_SEPARATOR)[1:]
    ours = [part for part in parts if json.loads(part).get("pcr") == register]
    return b"".join(_SEPARATOR + part for part in (*(part for part in parts if part not in ours[happened:]), record))


def _record(register: int, hashed: bytes, content: dict[str, object]) -> bytes:
    body = {
        "pcr": register,
        "digests": [{"hashAlg": bank, "digest": hashlib.new(bank, hashed).hexdigest()} for bank in _BANKS],
        "content_type": _CONTENT_TYPE,
        "content": {**content, "timestamp": time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000},
    }
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"
