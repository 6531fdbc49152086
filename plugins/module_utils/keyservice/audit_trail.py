# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decisions of one control plane in two logs: one for grants, one for refusals.

A machine that is refused can ask as often as the network allows, so refusals must not push out the records of grants:

- The refusal of a machine that proved nothing is counted, and one record a minute has the count of each kind.
- The refusal of a known source is a record of its own within the limit of that source, and is counted beyond it.
- Refusals have their own files. Their head is written into the log of grants, and so is signed with it.

Before the oldest files of a log are deleted, a record names the new beginning, and the TPM signs that record. If the
beginning is missing without such a record, the log was cut off.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.rate import TokenBuckets
from ..errors import Refusal
from .audit_log import AuditLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.host import Clock, Random
    from .audit_log import AuditPlace, Head, Rotation

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
