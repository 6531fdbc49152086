# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which events of two boots differ, for explanation only: nothing here decides.

What stands at the same place of two logs need not be the same thing: one program more in front moves all others. So the
events that differ are paired by what they are (type, and what the text says in front of the value), never by position
alone.
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
"""Stands between the entries of a list (Secure Boot's keys) in an event's text."""

_VALUE_MARK = " = "
_VERSION = re.compile(r"[0-9][0-9a-zA-Z.+~_-]*")
_SUBJECT = re.compile(r"(.+?)(?: = |: |, | at | with | \\|$)(\S*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDeviation:
    """An event that differs from the reference; ``expected`` or ``got`` is None where the other has no counterpart."""

    expected: MeasuredEvent | None
    got: MeasuredEvent | None

    @property
    def pcr(self) -> int:
        """The register of the event."""
        return self._told[0].pcr

    @property
    def rank(self) -> int:
        """What sorts a list of deviations: the better a person understands it, the smaller."""
        return min(event.rank for event in self._told)

    @property
    def place(self) -> str:
        """Where it is: register, number in the log and type, as far as they are known."""
        number = "" if self.got is None or self.got.index is None else f" {self.got.index}"
        kind = self._told[0].kind
        return f"PCR {self.pcr} event{number}" + (f" ({kind})" if kind else "")

    @property
    def _told(self) -> tuple[MeasuredEvent, ...]:
        """What there is of the two, the machine's own first."""
        return tuple(event for event in (self.got, self.expected) if event is not None)

    def __str__(self) -> str:
        """Return the deviation as a clause: the words, and digests where words alone do not tell the difference."""
        old, new = self.expected, self.got
        if old is None or new is None:
            return f"{self.place}: expected {_alone(old)}, got {_alone(new)}"
        if old.digest == new.digest:
            return f"{self.place} {_in_words(new)}: expected at another place of the log"
        if old.text == new.text:
            return f"{self.place} {_in_words(new)}: expected {old.digest.hex()}, got {new.digest.hex()}"
        head, wanted, found = _entries(old.text, new.text)
        if head:
            doubt = "" if new.proven else " (told, not proven)"
            return f"{self.place} {head!r}: expected {wanted}, got {found}{doubt}"
        return f"{self.place}: expected {old.text!r}, got {_in_words(new)}"


def event_deviations(
    reference: Sequence[MeasuredEvent], events: Sequence[MeasuredEvent], pcrs: Iterable[int]
) -> tuple[EventDeviation, ...]:
    """Return what differs in the registers ``pcrs``; without reference events there is nothing to compare with."""
    found: list[EventDeviation] = []
    for pcr in sorted(pcrs):
        expected = [event for event in reference if event.pcr == pcr]
        if expected:
            found += _aligned(expected, [event for event in events if event.pcr == pcr])
    return tuple(sorted(found, key=lambda deviation: deviation.rank))


@dataclass(frozen=True, slots=True)
class _Differing:
    """An event without a counterpart of the same digest at its place: ``block`` counts the places where logs part.

    ``kind`` is empty where profiles of an earlier release do not know the types of their events.
    """

    block: int
    kind: str
    event: MeasuredEvent


def _aligned(expected: list[MeasuredEvent], got: list[MeasuredEvent]) -> list[EventDeviation]:
    """Return the differing events of one register, paired as far as they are the same thing, in the log's order."""
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
    """Return for each of ``new`` its counterpart's place in ``old``; the surest likeness is looked for first."""
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
    """Return the places at which one event alone of its type differs: there it was put in place of another."""
    return {place for place, count in Counter(map(_same_place, differing)).items() if count == 1}


def _same_digest(one: _Differing) -> Hashable:
    return one.event.digest


def _same_text(one: _Differing) -> Hashable:
    return one.kind, one.event.text


def _same_form(one: _Differing) -> Hashable:
    """Return the text without versions and numbers: the same file of another release."""
    return one.kind, _VERSION.sub("#", one.event.text)


def _same_subject(one: _Differing) -> Hashable:
    """Return what stands in front of the value, and the value's first word: the same command of a loader."""
    return one.kind, _subject(one)


def _same_topic(one: _Differing) -> Hashable:
    return one.kind, _subject(one)[0]


def _subject(one: _Differing) -> tuple[str, str]:
    match = _SUBJECT.match(one.event.text)
    return (match[1], match[2]) if match else (one.event.text, "")


def _same_place(one: _Differing) -> Hashable:
    return one.block, one.kind


def _entries(old: str, new: str) -> tuple[str, str, str]:
    """Return what both texts are lists of, and the entries that only one of them has; nothing for other texts."""
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
    return repr(event.text) if event.proven else f"{event.text!r} (told, not proven)"
