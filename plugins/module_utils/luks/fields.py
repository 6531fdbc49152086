# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One object of the header's JSON, field by field: what nobody knows, lacks or has another type is LUKS_FIELD."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from ..errors import DiskError
from ..reasons import Reason

_MAX_SIZE_DIGITS = 19
_MAX_SLOTS = 32


class Fields:
    """An object at a place such as ``keyslots.0.area``; a context in which every member must be asked for."""

    def __init__(self, value: object, place: str) -> None:
        """Begin to read ``value``, which must be an object."""
        self.place = place
        if not isinstance(value, dict):
            raise self.wrong("expected an object")
        self._members: dict[str, Any] = dict(value)

    def __contains__(self, name: str) -> bool:
        """Say whether ``name`` is there and was not asked for yet."""
        return name in self._members

    def take(self, name: str) -> object:
        """Return a member of any type and count it as asked for."""
        if name not in self._members:
            raise self.wrong(f"expected {name}")
        return self._members.pop(name)

    def rest(self) -> dict[str, Any]:
        """Return what nobody asked for, and count it as asked for."""
        members, self._members = self._members, {}
        return members

    def finish(self) -> None:
        """Refuse what nobody asked for."""
        if self._members:
            raise self.wrong(f"did not expect {min(self._members)[:40]!r}")

    def text(self, name: str) -> str:
        """Return a short text."""
        value = self.take(name)
        if not isinstance(value, str) or len(value) > 64:  # noqa: PLR2004
            raise self.wrong(f"expected a short text as {name}")
        return value

    def number(self, name: str) -> int:
        """Return a whole number below 2**32."""
        value = self.take(name)
        if not isinstance(value, int) or isinstance(value, bool) or value >> 32:
            raise self.wrong(f"expected a number below 2**32 as {name}")
        return value

    def size(self, name: str) -> int:
        """Return a number of bytes, which LUKS2 writes as a decimal text."""
        value = self.text(name)
        if not value.isdecimal() or len(value) > _MAX_SIZE_DIGITS or str(int(value)) != value:
            raise self.wrong(f"expected a decimal text as {name}")
        return int(value)

    def binary(self, name: str) -> bytes:
        """Return bytes given in base64, in its one spelling."""
        value = self.text(name)
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise self.wrong(f"expected base64 as {name}") from None
        if base64.b64encode(data).decode("ascii") != value:
            raise self.wrong(f"expected base64 in its one spelling as {name}")
        return data

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of short texts, none twice."""
        value = self.take(name)
        if (
            not isinstance(value, list)
            or len(value) > _MAX_SLOTS
            or not all(isinstance(one, str) and len(one) <= 64 for one in value)  # noqa: PLR2004
            or len(set(value)) != len(value)
        ):
            raise self.wrong(f"expected a list of texts as {name}")
        return tuple(value)

    def fields(self, name: str) -> Fields:
        """Return an object within this one."""
        return Fields(self.take(name), f"{self.place}.{name}" if self.place else name)

    def numbered(self, name: str) -> dict[int, Fields]:
        """Return the objects of a section by their number."""
        section = self.fields(name)
        members = section.rest()
        for key in members:
            number_of(key, section.place)
        return {int(key): Fields(value, f"{section.place}.{key}") for key, value in members.items()}

    def wrong(self, problem: str) -> DiskError:
        """Return the refusal of this place."""
        return DiskError(f"{self.place or 'the header'}: {problem}", reason=Reason.LUKS_FIELD)


def number_of(key: str, place: str) -> int:
    """Return the number that a key or reference of the header names."""
    if not key.isdecimal() or not key.isascii() or str(int(key[:3])) != key or int(key) >= _MAX_SLOTS:
        raise DiskError(f"{place}: expected a number below {_MAX_SLOTS}, got {key[:40]!r}", reason=Reason.LUKS_FIELD)
    return int(key)
