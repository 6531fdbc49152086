# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a manifest field by field: collect every problem with its place, so that one error lists all of them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_Choice = TypeVar("_Choice", bound=Enum)

_SHA256_HEX = re.compile(r"[0-9a-f]{64}")
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
_SHOWN_PROBLEMS = 20
_SHOWN = 80


def listed(problems: Sequence[str]) -> str:
    """Return the first problems as one text for a message, and how many more there are."""
    rest = len(problems) - _SHOWN_PROBLEMS
    return "; ".join(problems[:_SHOWN_PROBLEMS]) + (f"; and {rest} more" if rest > 0 else "")


def moment_of(value: object) -> datetime | None:
    """Return a time with its zone (RFC 3339) as UTC; None for anything else, and outside the years 1970 to 9998.

    Times near the limits of `datetime` cannot be converted to another zone, or added to.
    """
    try:
        read = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return read.astimezone(UTC) if read.tzinfo is not None and _FIRST <= read < _LAST else None
    except (ValueError, OverflowError):
        return None


class Fields:
    """A mapping of a manifest at a place such as ``base.yml.spec.registers[0]``.

    A wrong or missing field is noted in ``problems``, which all places of one document share, and read as an empty
    value, so that reading continues. `finish` notes the members that were not read.
    """

    def __init__(self, members: object, *, place: str, problems: list[str]) -> None:
        """Store the ``members`` to read; anything but a mapping with text keys is a problem."""
        self.place = place
        self.problems = problems
        self._members: dict[str, Any] = {}
        self._readable = True
        if isinstance(members, dict) and all(isinstance(name, str) for name in members):
            self._members = dict(members)
        else:
            self.note(f"expected a mapping, got {_kind(members)}")
            self._readable = False

    def note(self, problem: str) -> None:
        """Add a problem of this place; if the place is no mapping, only that is noted."""
        if self._readable:
            self.problems.append(f"{self.place}: {problem}")

    def take(self, name: str, *, default: object = None) -> object:
        """Return the member and count it as read."""
        return self._members.pop(name, default)

    def text(self, name: str, *, limit: int, default: str | None = None) -> str:
        """Return a text on one line of at most ``limit`` characters; without ``default`` the field must exist."""
        value = self.take(name, default=default)
        if (
            not isinstance(value, str)
            or len(value) > limit
            or not value.isprintable()
            or (default is None and not value)
        ):
            self.note(f"{name}: expected a text on one line of at most {limit} characters, got {_kind(value)}")
            return ""
        return value

    def matching(self, name: str, pattern: re.Pattern[str], described: str) -> str:
        """Return a text that matches ``pattern`` as a whole."""
        value = self.take(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            self.note(f"{name}: expected {described}, got {_kind(value)}")
            return ""
        return value

    def sha256(self, name: str) -> bytes:
        """Return a SHA-256 digest given as 64 lower-case hex digits."""
        return bytes.fromhex(self.matching(name, _SHA256_HEX, "64 lower-case hex digits"))

    def choice(self, name: str, choices: type[_Choice]) -> _Choice:
        """Return the member of ``choices`` with this value; the first member if the value is unknown."""
        value = self.take(name)
        for one in choices:
            if one.value == value:
                return one
        listed = ", ".join(str(one.value) for one in choices)
        self.note(f"{name}: expected one of {listed}, got {_kind(value)}")
        return next(iter(choices))

    def number(self, name: str, *, below: int) -> int:
        """Return an integer from 0 to ``below`` - 1."""
        value = self.take(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < below:
            self.note(f"{name}: expected a number from 0 to {below - 1}, got {_kind(value)}")
            return 0
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean; false if the field is missing."""
        value = self.take(name, default=False)
        if not isinstance(value, bool):
            self.note(f"{name}: expected true or false, got {_kind(value)}")
            return False
        return value

    def moment(self, name: str) -> datetime | None:
        """Return a time with its zone (RFC 3339) as UTC; None if the field is missing."""
        value = self.take(name)
        if value is None:
            return None
        read = moment_of(value)
        if read is None:
            self.note(f"{name}: expected a time such as 2027-01-31T12:00:00Z, got {_kind(value)}")
            return _FIRST
        return read

    def texts(self, name: str, *, limit: int, each: int) -> tuple[str, ...] | None:
        """Return a list of at most ``limit`` texts of at most ``each`` characters; None if the field is missing."""
        value = self.take(name)
        if value is None:
            return None
        listed = value if isinstance(value, list) else [value]
        wrong = [one for one in listed if not isinstance(one, str) or not one.isprintable() or not 0 < len(one) <= each]
        if wrong or listed is not value or len(listed) > limit:
            self.note(f"{name}: expected a list of at most {limit} texts of at most {each} characters")
            return ()
        return tuple(listed)

    def has(self, name: str) -> bool:
        """Whether the member exists and was not read yet."""
        return self._members.get(name) is not None

    def mapping(self, name: str) -> Fields:
        """Return the mapping ``name`` for reading."""
        return Fields(self.take(name), place=f"{self.place}.{name}", problems=self.problems)

    def sequence(self, name: str, *, limit: int, optional: bool = False) -> Iterator[Fields]:
        """Yield the mappings of the list ``name``; each is finished before the next one is yielded."""
        value = self.take(name, default=[] if optional else None)
        if not isinstance(value, list) or len(value) > limit:
            self.note(f"{name}: expected a list of at most {limit} entries, got {_kind(value)}")
            return
        for index, entry in enumerate(value):
            place = Fields(entry, place=f"{self.place}.{name}[{index}]", problems=self.problems)
            yield place
            place.finish()

    def digests(self, name: str, *, limit: int) -> tuple[str, ...]:
        """Return a list of distinct SHA-256 digests, each with 64 lower-case hex digits."""
        value = self.take(name)
        if not isinstance(value, list) or len(value) > limit:
            self.note(f"{name}: expected a list of at most {limit} entries, got {_kind(value)}")
            return ()
        wrong = [one for one in value if not isinstance(one, str) or not _SHA256_HEX.fullmatch(one)]
        if wrong:
            self.note(f"{name}: expected 64 lower-case hex digits, got {_kind(wrong[0])}")
            return ()
        if len(set(value)) != len(value):
            self.note(f"{name}: expected each digest once")
        return tuple(value)

    def finish(self) -> None:
        """Note every member that was not read as unknown."""
        for name in sorted(self._members):
            self.note(f"{name[:_SHOWN]!r}: unknown field")


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    return repr(value)[:_SHOWN] if isinstance(value, (str, int, float, bool)) else f"a {type(value).__name__}"
