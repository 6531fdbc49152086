# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the reason code of a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.service_bed import ServiceBed

COARSE = "attestation refused"


class Coded(str):
    """The reason code of an error, which also equals "CODE: words" if the error's message has these words.

    Several checks share one code; the words identify the check.
    """

    message: str
    __slots__ = ("message",)
    __hash__ = str.__hash__

    def __new__(cls, error: AttestedError) -> Self:
        """Set the code and the message."""
        made = super().__new__(cls, error.code)
        made.message = error.message
        return made

    def __eq__(self, other: object) -> bool:
        """Compare the code, and the words if ``other`` has some."""
        code, _colon, words = str(other).partition(": ")
        return str(self) == code and words in self.message

    def __ne__(self, other: object) -> bool:
        """Return the negation: `str` has its own method for it."""
        return not self == other

    def __repr__(self) -> str:
        """Return both, for the output of a failed test."""
        return f"{self!s}: {self.message}"


def code_of(action: Callable[[], object]) -> Coded:
    """Return the reason code of the refusal of ``action``; it compares like `Coded`."""
    with pytest.raises(AttestedError) as caught:
        action()
    return Coded(caught.value)


def refused(action: Callable[[], object], bed: ServiceBed) -> dict[str, Any]:
    """Return the key service's log line of a refusal; the machine gets only the coarse text."""
    before = len(bed.lines("key"))
    with pytest.raises(AttestedError) as caught:
        action()
    assert caught.value.code == "TICKET_REFUSED"
    assert COARSE in caught.value.message
    line = next(line for line in bed.lines("key")[before:] if line.get("outcome") == "refused")
    assert line["reason"] not in caught.value.message
    relayed = bed.last_refusal("join")
    assert (relayed["reason"], relayed["correlation_id"]) == (line["reason"], line["correlation_id"])
    return line
