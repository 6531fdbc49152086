# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One hash chain of records on a control plane's disk, written by one process only.

A record is written before the answer that it describes is sent, so a killed process loses no record. `sync` calls
fsync once a second and at each head. A power failure loses at most that second, and the loss is found, because the
copies of the heads are ahead. An fsync for each record would slow down every ticket.

Nothing here deletes a file by itself: `surplus` returns which files are too many, and `delete_before` deletes them
after a signed record names the new beginning (`AuditTrail`). Each file begins with a record that names the log.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.rate import TokenBuckets
from ..errors import Refusal, SystemFault
from ..reasons import Reason
from ..transport.binding import label, length_prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..core.host import Clock, Random


# Records and their chain. Pure.
#
# A record is one line of JSON in ASCII with sorted names, so no value can contain a line break.
# Its digest is SHA-256 over the label and the line without its end; the next record holds it as ``previous``.

GENESIS = bytes(32)
MAX_RECORD_BYTES = 65_536

_END = 1 << 63
_MAX_TEXT = 4000
_RECORD = "audit-record"
_HEAD = "audit-head"

Value: TypeAlias = "str | float | bool | None"


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a log after one of its records: ``sha256`` (32 bytes) covers all records up to it."""

    log: str
    sequence: int
    sha256: bytes

    def digest(self) -> bytes:
        """Return the 32 bytes that a TPM signs."""
        return hashlib.sha256(
            length_prefixed(label(_HEAD), self.log.encode(), self.sequence.to_bytes(8, "big"), self.sha256)
        ).digest()


@dataclass(frozen=True, slots=True)
class Rotation:
    """The first record of a log after its older files are deleted, and the digest of the record before it."""

    first: int
    sha256: bytes


def render(fields: Mapping[str, object], *, sequence: int, previous: bytes) -> bytes:
    """Return the line of a record, without its end."""
    clean = {name: _clean(value) for name, value in fields.items()}
    return json.dumps(
        {**clean, "sequence": sequence, "previous": previous.hex()}, sort_keys=True, separators=(",", ":")
    ).encode("ascii")


def digest_of(line: bytes) -> bytes:
    """Return the digest of a line, 32 bytes."""
    return hashlib.sha256(length_prefixed(label(_RECORD), line)).digest()


def parse_record(line: bytes) -> dict[str, Any]:
    """Return the record of a line; raises AUDIT_MALFORMED."""
    try:
        record = json.loads(line) if len(line) <= MAX_RECORD_BYTES else None
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not _is_flat(record) or not _is_numbered(record):
        raise SystemFault(f"expected an audit record, got {line[:80]!r}", reason=Reason.AUDIT_MALFORMED)
    return record


def is_sequence(value: object) -> bool:
    """Return whether ``value`` is the number of a record."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _END


def _is_numbered(record: dict[str, Any]) -> bool:
    return is_sequence(record.get("sequence")) and isinstance(record.get("previous"), str)


def _is_flat(record: dict[str, Any]) -> bool:
    """Return whether the record has no nested values, as `render` writes it."""
    return not any(isinstance(value, dict | list) for value in record.values())


def _clean(value: object) -> Value:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}… ({len(value)} characters)"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return f"<{type(value).__name__}>"


RECORDS_A_HEAD = 100
NAMES_ITS_LOG = frozenset({"begun", "continued", "head"})
"""Events whose field ``log`` names their own log; other records may name the log of another control plane."""

_SUFFIX = ".jsonl"
_LOG_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlace:
    """The directory of the log, the size at which a new file begins, and how many files are kept.

    ``stem``: the prefix of the file names.
    """

    directory: Path
    file_bytes: int = 16 << 20
    files: int = 64
    stem: str = "audit"

    def existing(self) -> list[Path]:
        """Return the files, oldest first."""
        return sorted(self.directory.glob(f"{self.stem}-*{_SUFFIX}"))

    def file_from(self, sequence: int) -> Path:
        """Return the path of the file whose first record has this number."""
        return self.directory / f"{self.stem}-{sequence:012d}{_SUFFIX}"

    def first_of(self, path: Path) -> int:
        """Return the number of the first record of the file ``path``."""
        return int(path.stem.removeprefix(f"{self.stem}-"))


class AuditLog:
    """The open log; may be used by several threads."""

    def __init__(self, place: AuditPlace, *, node: str, clock: Clock, random: Random) -> None:
        """Continue the log in ``place``, or begin a new one; raises AUDIT_UNWRITABLE, AUDIT_MALFORMED."""
        self._place = place
        self._node = node
        self._clock = clock
        self._lock = threading.Lock()
        self._file = -1
        self._size = 0
        self._head = Head("", 0, GENESIS)
        self._signed = 0
        self._urgent = 0
        try:
            place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            torn = self._resume()
        except OSError as error:
            raise _unwritable(place, error) from error
        if not self._head.log:
            self._begin(random.token(_LOG_BYTES).hex())
        elif torn:
            self.append("torn", bytes=torn)

    def append(self, event: str, /, **fields: object) -> None:
        """Write one record; raises AUDIT_UNWRITABLE, and then the caller must not do what the record describes."""
        with self._lock:
            self._append({**fields, "event": event})

    def decided(self, event: str, fields: Mapping[str, object], *, refusal: Mapping[str, object] | None = None) -> None:
        """Write the record of a decision: ``fields`` name the machine, ``refusal`` holds reason and detail."""
        self.append(event, **{**fields, "outcome": "refused" if refusal else "given", **(refusal or {})})

    def append_urgent(self, event: str, /, **fields: object) -> Head:
        """Write one record that must be signed soon, and return the state after it."""
        with self._lock:
            self._append({**fields, "event": event})
            self._urgent = self._head.sequence
            return self._head

    def surplus(self) -> Rotation | None:
        """Return the new beginning of the log if it has more files than it may keep, else None."""
        files = self._place.existing()
        if len(files) <= self._place.files:
            return None
        stays = files[-self._place.files]
        with stays.open("rb") as stream:
            previous = parse_record(stream.readline().rstrip(b"\n"))["previous"]
        return Rotation(self._place.first_of(stays), bytes.fromhex(previous))

    def delete_before(self, rotation: Rotation) -> None:
        """Delete the files before the first record that is kept. The caller must have a signed record of it."""
        for path in self._place.existing():
            if self._place.first_of(path) < rotation.first:
                path.unlink()

    def head(self) -> Head:
        """Return the state after the last record."""
        with self._lock:
            return self._head

    def due(self) -> Head | None:
        """Return the head to sign now: after each hundred records, or after a record of `append_urgent`; else None."""
        with self._lock:
            urgent = self._urgent > self._signed
            return self._head if urgent or self._head.sequence - self._signed >= RECORDS_A_HEAD else None

    def mark_signed(self, head: Head) -> None:
        """Store that all records up to ``head`` are signed, in this log or by a record of another log."""
        with self._lock:
            self._signed = head.sequence

    def unsigned(self) -> int:
        """Return the number of records after the last signed head."""
        with self._lock:
            return self._head.sequence - self._signed

    def signed(self, head: Head, evidence: str) -> None:
        """Write a head with the TPM's evidence over it, and fsync the log."""
        self.append("head", head=head.sequence, sha256=head.sha256.hex(), log=head.log, evidence=evidence)
        self.mark_signed(head)
        self.sync()

    def sync(self) -> None:
        """Fsync the file; raises AUDIT_UNWRITABLE."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise _unwritable(self._place, error) from error

    def close(self) -> None:
        """Sync and close."""
        self.sync()
        os.close(self._file)

    def _begin(self, log: str) -> None:
        self._head = Head(log, 0, GENESIS)
        self._open(1)
        self.append("begun", log=log, node=self._node)

    def _append(self, fields: Mapping[str, object]) -> None:
        try:
            if self._size >= self._place.file_bytes:
                self._open_next()
            if not self._size and self._head.sequence:
                self._add({"event": "continued", "log": self._head.log})
            self._add(fields)
        except OSError as error:
            raise _unwritable(self._place, error) from error

    def _add(self, fields: Mapping[str, object]) -> None:
        sequence = self._head.sequence + 1
        stamped = {"time": self._clock.now().isoformat(timespec="milliseconds"), **fields}
        line = render(stamped, sequence=sequence, previous=self._head.sha256)
        self._write(line + b"\n", Head(self._head.log, sequence, digest_of(line)))

    def _open_next(self) -> None:
        """Begin the next file. The old file stays open until the new one is: a full disk must not leave none."""
        old = self._file
        os.fsync(old)
        self._open(self._head.sequence + 1)
        os.close(old)

    def _write(self, data: bytes, head: Head) -> None:
        """Write the whole record or nothing, then set ``head``: part of a record would make the next one unreadable."""
        written = os.write(self._file, data)
        if written != len(data):
            os.ftruncate(self._file, self._size)
            raise OSError(28, "no space left for a whole record")
        self._size += written
        self._head = head

    def _open(self, sequence: int) -> None:
        path = self._place.file_from(sequence)
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._file, self._size = opened, os.fstat(opened).st_size

    def _resume(self) -> int:
        """Continue after the last whole record of the last file; return the bytes of a torn record that were cut."""
        files = self._place.existing()
        if not files:
            return 0
        last = files[-1]
        size = last.stat().st_size
        with last.open("rb") as stream:
            stream.seek(max(0, size - 2 * MAX_RECORD_BYTES))
            tail = stream.read()
        whole = tail[: tail.rfind(b"\n") + 1]
        torn = len(tail) - len(whole)
        if torn:
            os.truncate(last, size - torn)
        if not whole:
            last.unlink()
            return torn + self._resume()
        line = whole.splitlines()[-1]
        self._head = Head(self._log_id(files[0]), int(parse_record(line)["sequence"]), digest_of(line))
        self._signed = self._head.sequence - self._head.sequence % RECORDS_A_HEAD
        self._open(self._place.first_of(last))
        return torn

    def _log_id(self, first: Path) -> str:
        """Return the log's name: of the first record, or of the first head in a file of an earlier release."""
        with first.open("rb") as stream:
            for line in stream:
                record = parse_record(line.rstrip(b"\n"))
                if record.get("event") in NAMES_ITS_LOG and isinstance(record.get("log"), str):
                    return str(record["log"])
        raise SystemFault(f"expected {first} to name its log, it does not", reason=Reason.AUDIT_MALFORMED)


def _unwritable(place: AuditPlace, error: OSError) -> SystemFault:
    return SystemFault(
        f"cannot write the audit log in {place.directory}: {error.strerror}", reason=Reason.AUDIT_UNWRITABLE
    )


# The decisions of one control plane in two logs: one for grants, one for refusals.
#
# A machine that is refused can ask as often as the network allows, so refusals must not push out the records of grants:
#
# - The refusal of a machine that proved nothing is counted, and one record a minute has the count of each kind.
# - The refusal of a known source is a record of its own within the limit of that source, and is counted beyond it.
# - Refusals have their own files. Their head is written into the log of grants, and so is signed with it.
#
# Before the oldest files of a log are deleted, a record names the new beginning, and the TPM signs that record. If the
# beginning is missing without such a record, the log was cut off.

REFUSALS = "refused"
"""The prefix of the names of the files with refusals."""
COUNTED_EVERY_SECONDS = 60.0
RECORDED_AT_ONCE = 30
RECORDED_A_SECOND = 1 / 60
KINDS = 1024
"""How many kinds of refusals are counted separately within that minute; further ones are counted without a source."""


class AuditTrail:
    """Both logs; may be used by several threads, `due` and `signed` by one."""

    def __init__(self, place: AuditPlace, *, node: str, clock: Clock, random: Random) -> None:
        """Continue the logs in ``place``, or begin new ones; raises AUDIT_UNWRITABLE, AUDIT_MALFORMED."""
        self._given = AuditLog(place, node=node, clock=clock, random=random)
        self._refused = AuditLog(replace(place, stem=REFUSALS), node=node, clock=clock, random=random)
        self._clock = clock
        self._limits = TokenBuckets(rate=RECORDED_A_SECOND, burst=RECORDED_AT_ONCE, clock=clock, what="records")
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._written_at = clock.monotonic()
        self._rotations: dict[AuditLog, Rotation] = {}

    def append(self, event: str, /, **fields: object) -> None:
        """Write one record into the log of grants; raises AUDIT_UNWRITABLE."""
        self._given.append(event, **fields)

    def decided(
        self,
        event: str,
        fields: Mapping[str, object],
        *,
        refusal: Mapping[str, object] | None = None,
        source: str = "",
    ) -> None:
        """Record a decision; raises AUDIT_UNWRITABLE, and then the caller must not grant anything.

        ``fields`` name the machine, ``refusal`` holds reason and detail of a refusal. ``source``: the refused machine
        as far as it is proven. A refusal without source, or beyond the limit of its source, is counted only.
        """
        if not refusal:
            self._given.decided(event, fields)
            return
        if source and self._may_record(source):
            self._refused.decided(event, fields, refusal=refusal)
        else:
            self._count({(event, str(refusal.get("reason")), source): 1})
        self._write_counts(after_seconds=COUNTED_EVERY_SECONDS)

    def head(self) -> Head:
        """Return the state after the last record of the log of grants."""
        return self._given.head()

    def unsigned(self) -> int:
        """Return the number of records in the log of grants after the last signed head."""
        return self._given.unsigned()

    def due(self) -> Head | None:
        """Return the head to sign now, else None; first writes the records that this head has to cover."""
        rotates = [self._rotates(log) for log in (self._refused, self._given)]
        moved = self._refused.unsigned() and self._given.due() is not None
        if any(rotates) or moved or self._refused.due() is not None:
            refused = self._refused.head()
            self._given.append_urgent("refusals", log=refused.log, head=refused.sequence, sha256=refused.sha256.hex())
            self._refused.mark_signed(refused)
        return self._given.due()

    def signed(self, head: Head, evidence: str) -> None:
        """Write a head that `due` returned, with the TPM's evidence over it, and delete the files that it covers."""
        self._given.signed(head, evidence)
        for log, rotation in self._rotations.items():
            log.delete_before(rotation)
        self._rotations.clear()

    def sync(self) -> None:
        """Fsync both logs, and write the counts once a minute; raises AUDIT_UNWRITABLE."""
        self._write_counts(after_seconds=COUNTED_EVERY_SECONDS)
        self._given.sync()
        self._refused.sync()

    def write_counts(self) -> None:
        """Write the counts now."""
        self._write_counts(after_seconds=0)

    def close(self) -> None:
        """Write the counts, sync and close both logs."""
        self.write_counts()
        self._given.close()
        self._refused.close()

    def _rotates(self, log: AuditLog) -> bool:
        """Record in ``log`` which of its files will be deleted, once; return whether it was recorded now."""
        rotation = log.surplus()
        if rotation is None or self._rotations.get(log) == rotation:
            return False
        log.append_urgent("rotated", first=rotation.first, sha256=rotation.sha256.hex())
        self._rotations[log] = rotation
        return True

    def _may_record(self, source: str) -> bool:
        try:
            self._limits.take(source)
        except Refusal:
            return False
        return True

    def _count(self, kinds: Mapping[tuple[str, str, str], int]) -> None:
        with self._lock:
            for (event, reason, source), count in kinds.items():
                known = (event, reason, source) in self._counts or len(self._counts) < KINDS
                self._counts[(event, reason, source if known else "")] += count

    def _write_counts(self, *, after_seconds: float) -> None:
        """Write the counts if the last ones are ``after_seconds`` old; counts that could not be written are kept."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._written_at < after_seconds:
                return
            left, self._counts, self._written_at = self._counts, Counter(), now
        try:
            for event, reason, source in sorted(left):
                fields = {"source": source} if source else {}
                count = left[event, reason, source]
                self._refused.append("counted", of=event, outcome="refused", reason=reason, count=count, **fields)
                left[event, reason, source] = 0
        finally:
            self._count(+left)
