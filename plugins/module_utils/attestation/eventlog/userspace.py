# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of what was extended after the kernel started: JSON text sequences (RFC 7464) in systemd's form.

systemd writes /run/log/systemd/tpm2-measure.log (``src/shared/tpm2-util.c``, the TCG canonical event log's JSON
encoding); our own node lock log has the same form, with the cluster id in hex as what was hashed. Fields that are not
needed are not looked at.
"""

from __future__ import annotations

from typing import Any

from ...system import load_json
from ...tpm import ALG_SHA1, ALG_SHA256, ALG_SHA384, ALG_SHA512
from .types import REGISTERS, UserspaceRecord, malformed, require_size

MAX_LOG_BYTES = 128 * 1024
"""systemd writes about 300 bytes a record and a handful of records a boot."""

MAX_RECORDS = 256

RECORD_SEPARATOR = b"\x1e"

HASH_ALGORITHMS = {"sha1": ALG_SHA1, "sha256": ALG_SHA256, "sha384": ALG_SHA384, "sha512": ALG_SHA512}
"""The names in the log, and the TPM's numbers."""

_SIZES = {ALG_SHA1: 20, ALG_SHA256: 32, ALG_SHA384: 48, ALG_SHA512: 64}


def parse_records(data: bytes, log: str) -> tuple[UserspaceRecord, ...]:
    """Return the records of ``data``, in order; ``log`` names it in an error.

    Records of NV indices that stand in for registers are left out: they extend no register.
    Raises `Refusal` EVENT_LOG_MALFORMED or EVENT_LOG_TOO_LARGE.
    """
    require_size(log, data, MAX_LOG_BYTES)
    if not data:
        return ()
    first, *parts = data.split(RECORD_SEPARATOR)
    if first:
        raise malformed(log, "a record separator in front", repr(first[:16]))
    if len(parts) > MAX_RECORDS:
        raise malformed(log, f"at most {MAX_RECORDS} records", f"{len(parts)}")
    documents = [_document(part, log) for part in parts]
    return tuple(_record(document, log) for document in documents if "nv_index" not in document)


def _document(part: bytes, log: str) -> dict[str, Any]:
    try:
        document = load_json(part)
    except ValueError as error:
        raise malformed(log, "a JSON record", repr(part[:32])) from error
    if not isinstance(document, dict):
        raise malformed(log, "a JSON object", type(document).__name__)
    return document


def _record(document: dict[str, Any], log: str) -> UserspaceRecord:
    pcr, content = document.get("pcr"), document.get("content")
    if not isinstance(pcr, int) or isinstance(pcr, bool) or not 0 <= pcr < REGISTERS:
        raise malformed(log, f"a register below {REGISTERS}", repr(pcr)[:32])
    told = content if isinstance(content, dict) else {}
    return UserspaceRecord(
        pcr=pcr,
        digests=_digests(document.get("digests"), log),
        kind=_text(told, "eventType"),
        text=_text(told, "string") or _text(told, "clusterId"),
    )


def _digests(listed: object, log: str) -> dict[int, bytes]:
    if not isinstance(listed, list) or not listed:
        raise malformed(log, "a list of digests", type(listed).__name__)
    digests = dict(_digest(entry, log) for entry in listed)
    if len(digests) != len(listed):
        raise malformed(log, "one digest an algorithm", "two")
    return digests


def _digest(entry: object, log: str) -> tuple[int, bytes]:
    members = entry if isinstance(entry, dict) else {}
    alg = HASH_ALGORITHMS.get(_text(members, "hashAlg"))
    try:
        value = bytes.fromhex(_text(members, "digest"))
    except ValueError:
        value = b""
    if alg is None or len(value) != _SIZES[alg]:
        raise malformed(log, "a digest of a known algorithm and size", repr(entry)[:64])
    return alg, value


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""
