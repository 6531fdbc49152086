# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firmware's event log in its crypto-agile form (TCG PC Client Platform Firmware Profile 1.05, section 10).

Strict: one header, every event with exactly the header's algorithms, nothing after the last event. Only the digests of
an event are trusted. Its type only decides whether it was extended (EV_NO_ACTION was not).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.documents import load_json
from ...errors import Refusal
from ...reasons import Reason
from ...tpm.constants import ALG_SHA1, ALG_SHA256, ALG_SHA384, ALG_SHA512

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# The entries of all logs: a register, its digests, and a text that explains but proves nothing.

REGISTERS = 24
"""Registers of a PC client TPM: 0 to 23."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirmwareEvent:
    """One event of the firmware's log (TCG_PCR_EVENT2); ``digests`` maps TPM algorithm numbers to digests.

    ``number``: its position in the log, as tpm2_eventlog counts (the header is 0); a comparison ignores it.
    """

    pcr: int
    kind: int
    digests: Mapping[int, bytes]
    data: bytes
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirmwareLog:
    """A parsed firmware log without its header and without EV_NO_ACTION, which extends nothing."""

    events: tuple[FirmwareEvent, ...]
    startup_locality: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserspaceRecord:
    """One record of a JSON-seq log; ``kind`` is its event type, ``text`` the hashed text if the writer states it."""

    pcr: int
    digests: Mapping[int, bytes]
    kind: str
    text: str


def malformed(log: str, expected: str, got: str) -> Refusal:
    """Return the refusal EVENT_LOG_MALFORMED of ``log``."""
    return Refusal(f"expected {expected} in the {log}, got {got}", reason=Reason.EVENT_LOG_MALFORMED)


def require_size(log: str, data: bytes, limit: int) -> None:
    """Raise EVENT_LOG_TOO_LARGE for a log of more than ``limit`` bytes, before it is parsed."""
    if len(data) > limit:
        raise Refusal(f"expected at most {limit} bytes of {log}, got {len(data)}", reason=Reason.EVENT_LOG_TOO_LARGE)


MAX_LOG_BYTES = 512 * 1024
"""Firmware usually reserves 64 KiB; large servers with many option ROMs need less than half of this limit."""

MAX_EVENTS = 4096

EV_NO_ACTION = 0x00000003

_LOG = "firmware event log"
_EVENT_HEAD = struct.Struct("<III")
_SIGNATURE = b"Spec ID Event03\x00"
_STARTUP_LOCALITY = b"StartupLocality\x00"
_LOCALITIES = (0, 3, 4)
_MAX_ALGORITHMS = 8
_MAX_DIGEST_BYTES = 64
_SHA1_BYTES = 20
_KNOWN_SIZES = {ALG_SHA1: 20, ALG_SHA256: 32, ALG_SHA384: 48, ALG_SHA512: 64}


@dataclass(slots=True)
class _Cursor:
    """A position in the log; every read is checked against its end."""

    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        start, end = self.at, self.at + size
        if end > len(self.data):
            raise malformed(_LOG, f"{size} more bytes at offset {start}", f"{len(self.data) - start}")
        self.at = end
        return self.data[start:end]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    @property
    def more(self) -> bool:
        return self.at < len(self.data)


def parse_firmware_log(data: bytes) -> FirmwareLog:
    """Return the events of ``data`` (binary_bios_measurements); an empty log has none.

    Raises `Refusal` EVENT_LOG_MALFORMED or EVENT_LOG_TOO_LARGE.
    """
    require_size(_LOG, data, MAX_LOG_BYTES)
    if not data:
        return FirmwareLog(events=(), startup_locality=0)
    events: list[FirmwareEvent] = []
    locality: int | None = None
    for event in _all_events(_Cursor(data)):
        if event.kind != EV_NO_ACTION:
            events.append(_in_range(event))
        elif event.data.startswith(_STARTUP_LOCALITY):
            late = locality is not None or any(earlier.pcr == 0 for earlier in events)
            locality = _locality(event, late=late)
    return FirmwareLog(events=tuple(events), startup_locality=locality or 0)


def _all_events(cursor: _Cursor) -> Iterator[FirmwareEvent]:
    sizes = _header(cursor)
    count = 0
    while cursor.more:
        count += 1
        if count > MAX_EVENTS:
            raise malformed(_LOG, f"at most {MAX_EVENTS} events", "more")
        yield _event(cursor, sizes, count)


def _header(cursor: _Cursor) -> dict[int, int]:
    """Return the digest size of each algorithm, from the TCG_EfiSpecIDEvent that begins the log."""
    pcr, kind, _digest = cursor.number(4), cursor.number(4), cursor.take(_SHA1_BYTES)
    body = _Cursor(cursor.take(cursor.number(4)))
    if (pcr, kind) != (0, EV_NO_ACTION) or body.take(len(_SIGNATURE)) != _SIGNATURE:
        raise malformed(_LOG, "the header Spec ID Event03", "another first event")
    body.take(8)  # platform class, version, errata, size of UINTN: they do not change the format
    count = body.number(4)
    if not 1 <= count <= _MAX_ALGORITHMS:
        raise malformed(_LOG, f"1 to {_MAX_ALGORITHMS} algorithms", f"{count}")
    sizes = dict(_algorithm(body) for _unused in range(count))
    if len(sizes) != count:
        raise malformed(_LOG, "every algorithm once", "one of them twice")
    body.take(body.number(1))
    if body.more:
        raise malformed(_LOG, "the end of the header", "more bytes")
    return sizes


def _algorithm(body: _Cursor) -> tuple[int, int]:
    alg, size = body.number(2), body.number(2)
    if not 0 < size <= _MAX_DIGEST_BYTES or _KNOWN_SIZES.get(alg, size) != size:
        raise malformed(_LOG, f"the digest size of algorithm {alg:#06x}", f"{size}")
    return alg, size


def _event(cursor: _Cursor, sizes: dict[int, int], number: int) -> FirmwareEvent:
    pcr, kind, count = _EVENT_HEAD.unpack(cursor.take(_EVENT_HEAD.size))
    if count != len(sizes):
        raise malformed(_LOG, f"{len(sizes)} digests an event", f"{count}")
    digests: dict[int, bytes] = {}
    for _unused in range(count):
        alg = cursor.number(2)
        if alg not in sizes or alg in digests:
            raise malformed(_LOG, "one digest of each algorithm of the header", f"algorithm {alg:#06x}")
        digests[alg] = cursor.take(sizes[alg])
    return FirmwareEvent(pcr=pcr, kind=kind, digests=digests, data=cursor.take(cursor.number(4)), number=number)


def _in_range(event: FirmwareEvent) -> FirmwareEvent:
    if event.pcr >= REGISTERS:
        raise malformed(_LOG, f"a register below {REGISTERS}", f"{event.pcr}")
    return event


def _locality(event: FirmwareEvent, *, late: bool) -> int:
    """Return the locality of TPM2_Startup, the initial value of PCR 0; it must come once, before PCR 0 is extended."""
    locality = event.data[len(_STARTUP_LOCALITY) :]
    if late or len(locality) != 1 or locality[0] not in _LOCALITIES:
        raise malformed(_LOG, "one StartupLocality of 0, 3 or 4 before any event of PCR 0", repr(locality.hex()))
    return locality[0]


# Logs of the events after the kernel's start: JSON text sequences (RFC 7464) in systemd's form.
#
# systemd writes /run/log/systemd/tpm2-measure.log (``src/shared/tpm2-util.c``, the TCG canonical event log's JSON
# encoding). Our node lock log has the same form, with the cluster id in hex as the hashed text. Other fields are
# ignored.

MAX_USERSPACE_LOG_BYTES = 128 * 1024
"""systemd writes about 300 bytes for each record, and a few records in each boot."""

MAX_RECORDS = 256

RECORD_SEPARATOR = b"\x1e"

HASH_ALGORITHMS = {"sha1": ALG_SHA1, "sha256": ALG_SHA256, "sha384": ALG_SHA384, "sha512": ALG_SHA512}
"""The names in the log and the TPM's numbers of the algorithms."""

_SIZES = {ALG_SHA1: 20, ALG_SHA256: 32, ALG_SHA384: 48, ALG_SHA512: 64}


def parse_records(data: bytes, log: str) -> tuple[UserspaceRecord, ...]:
    """Return the records of ``data``, in order; ``log`` is its name in errors.

    Records of NV indices that replace registers are left out: they extend no register.
    Raises `Refusal` EVENT_LOG_MALFORMED or EVENT_LOG_TOO_LARGE.
    """
    require_size(log, data, MAX_USERSPACE_LOG_BYTES)
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
    fields = content if isinstance(content, dict) else {}
    return UserspaceRecord(
        pcr=pcr,
        digests=_digests(document.get("digests"), log),
        kind=_text(fields, "eventType"),
        text=_text(fields, "string") or _text(fields, "clusterId"),
    )


def _digests(listed: object, log: str) -> dict[int, bytes]:
    if not isinstance(listed, list) or not listed:
        raise malformed(log, "a list of digests", type(listed).__name__)
    digests = dict(_listed_digest(entry, log) for entry in listed)
    if len(digests) != len(listed):
        raise malformed(log, "one digest an algorithm", "two")
    return digests


def _listed_digest(entry: object, log: str) -> tuple[int, bytes]:
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
