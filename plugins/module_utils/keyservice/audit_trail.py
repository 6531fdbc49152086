# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decisions of one control plane: what was given and what was refused, in two logs beside each other.

Who gets nothing may ask as often as the network lets him, so refusals never push out what was given:

- A refusal of somebody who proved nothing is counted, and one record a minute tells how many there were of each kind.
- A refusal of somebody who is known is recorded by itself, as far as the limit of that source goes, then counted.
- Refusals have files of their own. Their head is written into the log of what was given, and so is signed with it.

When the oldest files of either go, a record in it says with which one it begins from then on, and they go only once the
TPM has signed that: a beginning that is missing without such a record was cut off.
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
"""What the names of the files with refusals begin with."""
COUNTED_EVERY_SECONDS = 60.0
RECORDED_AT_ONCE = 30
RECORDED_A_SECOND = 1 / 60
KINDS = 1024
"""So many kinds of refusals are counted apart within that minute; what is beyond it goes without a source."""


class AuditTrail:
    """Both logs; may be used by several threads, `due` and `signed` by one."""

    def __init__(self, place: AuditPlace, *, node: str, clock: Clock, random: Random) -> None:
        """Go on where the last process stopped, or begin; raises AUDIT_UNWRITABLE, AUDIT_MALFORMED."""
        self._given = AuditLog(place, node=node, clock=clock, random=random)
        self._refused = AuditLog(replace(place, stem=REFUSALS), node=node, clock=clock, random=random)
        self._clock = clock
        self._limits = TokenBuckets(rate=RECORDED_A_SECOND, burst=RECORDED_AT_ONCE, clock=clock, what="records")
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._told_at = clock.monotonic()
        self._going: dict[AuditLog, Rotation] = {}

    def append(self, event: str, /, **fields: object) -> None:
        """Write one record beside what was given; raises AUDIT_UNWRITABLE."""
        self._given.append(event, **fields)

    def decided(
        self,
        event: str,
        fields: Mapping[str, object],
        *,
        refusal: Mapping[str, object] | None = None,
        source: str = "",
    ) -> None:
        """Write down a decision; raises AUDIT_UNWRITABLE, and then nothing may be given out.

        ``fields`` say about whom, ``refusal`` holds reason and detail of a no. ``source`` is who was refused, as far as
        that is proven; without one, and beyond the limit of one source, the refusal is counted and not recorded.
        """
        if not refusal:
            self._given.decided(event, fields)
            return
        if source and self._may_record(source):
            self._refused.decided(event, fields, refusal=refusal)
        else:
            self._count({(event, str(refusal.get("reason")), source): 1})
        self._tell_counts(after_seconds=COUNTED_EVERY_SECONDS)

    def head(self) -> Head:
        """Return the state after the last record of what was given."""
        return self._given.head()

    def unsigned(self) -> int:
        """Return how many records of what was given the TPM has signed no head over."""
        return self._given.unsigned()

    def due(self) -> Head | None:
        """Return the head that is to be signed now, with what it is to cover written before it; else nothing."""
        rotates = [self._rotates(log) for log in (self._refused, self._given)]
        moved = self._refused.unsigned() and self._given.due() is not None
        if any(rotates) or moved or self._refused.due() is not None:
            refused = self._refused.head()
            self._given.press("refusals", log=refused.log, head=refused.sequence, sha256=refused.sha256.hex())
            self._refused.fixed(refused)
        return self._given.due()

    def signed(self, head: Head, evidence: str) -> None:
        """Write a head that `due` returned, with the TPM's evidence over it; the files that it lets go, go."""
        self._given.signed(head, evidence)
        for log, rotation in self._going.items():
            log.forget(rotation)
        self._going.clear()

    def sync(self) -> None:
        """Make the disk keep what was written, and write what was counted once a minute; raises AUDIT_UNWRITABLE."""
        self._tell_counts(after_seconds=COUNTED_EVERY_SECONDS)
        self._given.sync()
        self._refused.sync()

    def tell(self) -> None:
        """Write what was counted so far."""
        self._tell_counts(after_seconds=0)

    def close(self) -> None:
        """Write what was counted, sync and close."""
        self.tell()
        self._given.close()
        self._refused.close()

    def _rotates(self, log: AuditLog) -> bool:
        """Say in ``log`` which files of it go, unless that was said; return whether it was said now."""
        going = log.surplus()
        if going is None or self._going.get(log) == going:
            return False
        log.press("rotated", first=going.first, sha256=going.sha256.hex())
        self._going[log] = going
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

    def _tell_counts(self, *, after_seconds: float) -> None:
        """Write how many refusals of each kind were counted, where that was done so long ago; what fails is kept."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._told_at < after_seconds:
                return
            left, self._counts, self._told_at = self._counts, Counter(), now
        try:
            for event, reason, source in sorted(left):
                told = {"source": source} if source else {}
                count = left[event, reason, source]
                self._refused.append("counted", of=event, outcome="refused", reason=reason, count=count, **told)
                left[event, reason, source] = 0
        finally:
            self._count(+left)
