# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock's log as bytes: JSON text sequences (RFC 7464), the format of systemd's own measurement log."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from ..errors import NodeLockError
from ..reasons import Reason

EVENT_TYPE = "nodelock"
LOG_LIMIT = 1 << 20
_CONTENT_TYPE = "attested"
_VERSION = 1
_RECORD_SEPARATOR = "\x1e"
_MAX_RECORDS = 4096
_BANKS = ("sha256", "sha384", "sha512")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One extension that a log claims: register and SHA-256 digest (32 bytes)."""

    index: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRecord:
    """Our one record: ``cluster_id`` (bytes), register, boot id, microseconds of CLOCK_BOOTTIME."""

    cluster_id: bytes
    index: int
    boot_id: str
    timestamp: int


def parse_log(data: bytes) -> tuple[Measurement, ...]:
    """Return the extensions that a JSON-seq log claims, in order; raises NODELOCK_LOG_MALFORMED.

    Only the SHA-256 bank counts; a record without it is malformed (it could not be replayed).
    """
    return tuple(_measurement(record) for record in _records(data))


def render_record(record: LockRecord) -> bytes:
    """Return the log with exactly this record, its digests those of TPM2_PCR_Event in each bank."""
    body = {
        "pcr": record.index,
        "digests": [{"hashAlg": bank, "digest": hashlib.new(bank, record.cluster_id).hexdigest()} for bank in _BANKS],
        "content_type": _CONTENT_TYPE,
        "content": {
            "eventType": EVENT_TYPE,
            "version": _VERSION,
            "clusterId": record.cluster_id.hex(),
            "bootId": record.boot_id,
            "timestamp": record.timestamp,
        },
    }
    return f"{_RECORD_SEPARATOR}{json.dumps(body, separators=(',', ':'))}\n".encode()


def find_record(data: bytes) -> LockRecord | None:
    """Return the lock's record of our log, or None for an empty log; raises NODELOCK_LOG_MALFORMED.

    More than one record, a foreign type, an unknown version or a digest that is not the hash of the cluster id
    is malformed: this log has one writer and one shape.
    """
    records = _records(data)
    if not records:
        return None
    if len(records) > 1:
        raise _malformed(f"expected one record, found {len(records)}")
    return _lock_record(records[0])


def _lock_record(record: dict[str, object]) -> LockRecord:
    content = record.get("content")
    if record.get("content_type") != _CONTENT_TYPE or not isinstance(content, dict):
        raise _malformed(f"expected content of type {_CONTENT_TYPE}, found {record.get('content_type')!r}")
    if content.get("eventType") != EVENT_TYPE or content.get("version") != _VERSION:
        raise _malformed(f"expected a {EVENT_TYPE} record of version {_VERSION}")
    try:
        cluster_id = bytes.fromhex(str(content.get("clusterId")))
    except ValueError as error:
        raise _malformed("expected the cluster id in hexadecimal") from error
    found = _measurement(record)
    if found.digest != hashlib.sha256(cluster_id).digest():
        raise _malformed("expected the digest of the cluster id, found another one")
    return LockRecord(
        cluster_id=cluster_id,
        index=found.index,
        boot_id=str(content.get("bootId")),
        timestamp=_whole_number(content.get("timestamp")),
    )


def _records(data: bytes) -> tuple[dict[str, object], ...]:
    if len(data) > LOG_LIMIT:
        raise _malformed(f"expected at most {LOG_LIMIT} bytes, found {len(data)}")
    try:
        texts = [text for text in data.decode("utf-8").split(_RECORD_SEPARATOR) if text.strip()]
        records = [json.loads(text) for text in texts[: _MAX_RECORDS + 1]]
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise _malformed("expected JSON text sequences") from error
    if len(records) > _MAX_RECORDS or not all(isinstance(record, dict) for record in records):
        raise _malformed(f"expected at most {_MAX_RECORDS} JSON objects")
    return tuple(records)


def _measurement(record: dict[str, object]) -> Measurement:
    digests = record.get("digests")
    for entry in digests if isinstance(digests, list) else ():
        if isinstance(entry, dict) and entry.get("hashAlg") == "sha256":
            return Measurement(index=_whole_number(record.get("pcr")), digest=_digest(entry.get("digest")))
    raise _malformed("expected a SHA-256 digest in each record")


def _digest(text: object) -> bytes:
    try:
        digest = bytes.fromhex(str(text))
    except ValueError as error:
        raise _malformed("expected a digest in hexadecimal") from error
    if len(digest) != hashlib.sha256().digest_size:
        raise _malformed(f"expected 32 bytes of digest, found {len(digest)}")
    return digest


def _whole_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _malformed(f"expected a whole number, found {value!r}")
    return value


def _malformed(detail: str) -> NodeLockError:
    return NodeLockError(f"measurement log: {detail}", reason=Reason.NODELOCK_LOG_MALFORMED)
