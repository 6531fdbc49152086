# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the events of two boots, for explanation only: no decision uses the result.

Events at the same position of two logs may be different things, since one more program moves all later events. So
differing events are paired by their type and the text before their value, and never by position alone.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from .profile import MeasuredEvent

ENTRY_MARK = " | "
"""The separator of list entries (Secure Boot's keys) in an event's text."""

_VALUE_MARK = " = "
_VERSION = re.compile(r"[0-9][0-9a-zA-Z.+~_-]*")
_SUBJECT = re.compile(r"(.+?)(?: = |: |, | at | with | \\|$)(\S*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDeviation:
    """An event that differs from the reference; ``expected`` or ``got`` is None if the other has no counterpart."""

    expected: MeasuredEvent | None
    got: MeasuredEvent | None

    @property
    def pcr(self) -> int:
        """The register of the event."""
        return self._events[0].pcr

    @property
    def rank(self) -> int:
        """The sort key of a list of deviations: the most readable ones first."""
        return min(event.rank for event in self._events)

    @property
    def place(self) -> str:
        """The register, the number in the log and the type, as far as they are known."""
        number = "" if self.got is None or self.got.index is None else f" {self.got.index}"
        kind = self._events[0].kind
        return f"PCR {self.pcr} event{number}" + (f" ({kind})" if kind else "")

    @property
    def _events(self) -> tuple[MeasuredEvent, ...]:
        """The events that exist of the two, the machine's event first."""
        return tuple(event for event in (self.got, self.expected) if event is not None)

    def __str__(self) -> str:
        """Return the deviation as a clause: the texts, and the digests if the texts are equal."""
        old, new = self.expected, self.got
        if old is None or new is None:
            return f"{self.place}: expected {_alone(old)}, got {_alone(new)}"
        if old.digest == new.digest:
            return f"{self.place} {_in_words(new)}: expected at another place of the log"
        if old.text == new.text:
            return f"{self.place} {_in_words(new)}: expected {old.digest.hex()}, got {new.digest.hex()}"
        head, wanted, found = _entries(old.text, new.text)
        if head:
            doubt = "" if new.proven else " (logged, not proven)"
            return f"{self.place} {head!r}: expected {wanted}, got {found}{doubt}"
        return f"{self.place}: expected {old.text!r}, got {_in_words(new)}"


def event_deviations(
    reference: Sequence[MeasuredEvent], events: Sequence[MeasuredEvent], pcrs: Iterable[int]
) -> tuple[EventDeviation, ...]:
    """Return the differing events of the registers ``pcrs``; registers without reference events are skipped."""
    found: list[EventDeviation] = []
    for pcr in sorted(pcrs):
        expected = [event for event in reference if event.pcr == pcr]
        if expected:
            found += _aligned(expected, [event for event in events if event.pcr == pcr])
    return tuple(sorted(found, key=lambda deviation: deviation.rank))


@dataclass(frozen=True, slots=True)
class _Differing:
    """An event without an equal counterpart at its position; ``block`` is the number of the differing block.

    ``kind`` is empty if a profile of an earlier release has no event types.
    """

    block: int
    kind: str
    event: MeasuredEvent


def _aligned(expected: list[MeasuredEvent], got: list[MeasuredEvent]) -> list[EventDeviation]:
    """Return the differing events of one register in the log's order, as pairs if they are the same thing."""
    matcher = difflib.SequenceMatcher(
        None, [event.digest for event in expected], [event.digest for event in got], autojunk=False
    )
    blocks = [found for found in matcher.get_opcodes() if found[0] != "equal"]
    typed = all(event.kind for event in expected)
    old = _differing(expected, [(a, b) for _tag, a, b, _c, _d in blocks], typed=typed)
    new = _differing(got, [(c, d) for _tag, _a, _b, c, d in blocks], typed=typed)
    pairs = _paired(old, new)
    taken = {place for place in pairs if place is not None}
    rows = [
        (one.block, 0, EventDeviation(expected=None if place is None else old[place].event, got=one.event))
        for one, place in zip(new, pairs, strict=True)
    ]
    rows += [
        (one.block, 1, EventDeviation(expected=one.event, got=None))
        for place, one in enumerate(old)
        if place not in taken
    ]
    return [deviation for _block, _turn, deviation in sorted(rows, key=lambda row: row[:2])]


def _differing(events: Sequence[MeasuredEvent], spans: Sequence[tuple[int, int]], *, typed: bool) -> list[_Differing]:
    return [
        _Differing(block, event.kind if typed else "", event)
        for block, (first, end) in enumerate(spans)
        for event in events[first:end]
    ]


def _paired(old: Sequence[_Differing], new: Sequence[_Differing]) -> list[int | None]:
    """Return for each of ``new`` the index of its counterpart in ``old``; the closest matches are paired first."""
    pairs: list[int | None] = [None] * len(new)
    free = set(range(len(old)))
    for likeness in (_same_digest, _same_text, _same_form, _same_subject, _same_topic):
        waiting: defaultdict[Hashable, deque[int]] = defaultdict(deque)
        for place in sorted(free):
            waiting[likeness(old[place])].append(place)
        _take(pairs, free, new, waiting, likeness)
    lone_old = _lone([old[place] for place in free])
    lone_new = _lone([one for one, place in zip(new, pairs, strict=True) if place is None])
    waiting = defaultdict(deque)
    for place in sorted(free):
        if _same_place(old[place]) in lone_old & lone_new:
            waiting[_same_place(old[place])].append(place)
    _take(pairs, free, new, waiting, _same_place)
    return pairs


def _take(
    pairs: list[int | None],
    free: set[int],
    new: Sequence[_Differing],
    waiting: defaultdict[Hashable, deque[int]],
    likeness: Callable[[_Differing], Hashable],
) -> None:
    for number, one in enumerate(new):
        if pairs[number] is None and (line := waiting.get(likeness(one))):
            pairs[number] = place = line.popleft()
            free.remove(place)


def _lone(differing: Iterable[_Differing]) -> set[Hashable]:
    """Return the places at which only one event of its type differs, so that it replaced another."""
    return {place for place, count in Counter(map(_same_place, differing)).items() if count == 1}


def _same_digest(one: _Differing) -> Hashable:
    return one.event.digest


def _same_text(one: _Differing) -> Hashable:
    return one.kind, one.event.text


def _same_form(one: _Differing) -> Hashable:
    """Return the text without versions and numbers, which is equal for a file of another release."""
    return one.kind, _VERSION.sub("#", one.event.text)


def _same_subject(one: _Differing) -> Hashable:
    """Return the text before the value and the value's first word, equal for the same command of a loader."""
    return one.kind, _subject(one)


def _same_topic(one: _Differing) -> Hashable:
    return one.kind, _subject(one)[0]


def _subject(one: _Differing) -> tuple[str, str]:
    match = _SUBJECT.match(one.event.text)
    return (match[1], match[2]) if match else (one.event.text, "")


def _same_place(one: _Differing) -> Hashable:
    return one.block, one.kind


def _entries(old: str, new: str) -> tuple[str, str, str]:
    """Return the common subject of two list texts and the entries that only one has; empty for other texts."""
    head, mark, wanted = old.partition(_VALUE_MARK)
    other, _mark, found = new.partition(_VALUE_MARK)
    if not mark or head != other or ENTRY_MARK not in wanted + found:
        return "", "", ""
    before, after = wanted.split(ENTRY_MARK), found.split(ENTRY_MARK)
    only_before = [one for one in before if one not in set(after)]
    only_after = [one for one in after if one not in set(before)]
    if not only_before and not only_after:
        return "", "", ""
    return head, ENTRY_MARK.join(only_before) or "none", ENTRY_MARK.join(only_after) or "none"


def _alone(event: MeasuredEvent | None) -> str:
    return "none" if event is None else f"{_in_words(event)} with digest {event.digest.hex()}"


def _in_words(event: MeasuredEvent) -> str:
    return repr(event.text) if event.proven else f"{event.text!r} (logged, not proven)"
