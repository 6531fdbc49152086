# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List the failed tests, one per line, for the end of a long log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xml.etree import ElementTree as ET

LONGEST = 500
_FRAME = re.compile(r"\x1b\[[0-9;]*m|│")
_FAILED = re.compile(r"(fatal|failed): \[|Idempotence test failed")


def broken(suite: ET.Element) -> tuple[str, ...]:
    """Return name and message start of each failed test in a JUnit report, in `LONGEST` characters.

    A failed fixture fails all of its tests with the same message, which is listed once.
    """
    told: dict[str, str] = {}
    for case in suite.iter("testcase"):
        if _failure(case) is not None:
            name, words = f"{case.get('classname', '')}::{case.get('name', '')}", _first_words(case)
            told[name] = "as " + next(one for one in told if told[one] == words) if words in told.values() else words
    return tuple(f"{name}: {words}"[:LONGEST] for name, words in told.items())


def broken_task(output: str) -> str:
    """Return what molecule printed about the last task that failed, from its title on, in `LONGEST` characters."""
    text = " ".join(_FRAME.sub("", output).split())
    failed = [found.start() for found in _FAILED.finditer(text)]
    if not failed:
        return text[-LONGEST:]
    title = text.rfind("TASK [", 0, failed[-1]) if text[failed[-1]] == "f" else failed[-1]
    return text[max(title, 0) :][:LONGEST]


def _failure(case: ET.Element) -> ET.Element | None:
    return next((one for one in case if one.tag in {"failure", "error"}), None)


def _first_words(case: ET.Element) -> str:
    found = _failure(case)
    said = (found.get("message") if found is not None else None) or "no message"
    return " ".join(said.split())
