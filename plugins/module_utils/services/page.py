# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An HTML page about a fleet: what needs a person, one row a node, and what a template adds. Pure.

The page is one file and loads nothing. Its one script sorts and filters; the page is complete without it. The browser
applies only the script and the style whose hashes are in the page's Content-Security-Policy. Text that nodes report is
not trusted: every value is escaped, and marks of direction are shown as escapes.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.jinja import jinja2
from ..errors import visible

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

_HERE = Path(__file__).parent

GOOD, BAD, UNSURE = "good", "bad", "unsure"
"""The tones of a page: green, red, yellow. A word stands next to each colour, for readers who do not see colours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Why a person is needed: ``what`` happened to ``subject``, the details in ``lines``, a hint and the next command.

    ``word`` and its tone are shown next to ``what``, on pages with several kinds of needs.
    """

    subject: str
    what: str
    lines: tuple[str, ...] = ()
    hint: str = ""
    command: str = ""
    place: str = ""
    word: str = ""
    tone: str = BAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The number of nodes in one state."""

    word: str
    tone: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One fact of one node; ``full`` is the value that ``text`` shortens, ``order`` is the sort key."""

    text: str
    more: str = ""
    tone: str = ""
    full: str = ""
    order: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of every page; ``rows`` are in the order without script, with a cell for each column."""

    title: str
    about: str
    release: str
    made_at: datetime
    counts: tuple[Count, ...]
    needs: tuple[Need, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def render_page(page: Page, template: str, **more: Any) -> bytes:
    """Return the page by ``template``, a file of this directory that extends `page.html.j2`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = _own("page.css"), _own("page.js")
    text = environment.get_template(template).render(
        page=page,
        needs=grouped(page.needs),
        style=_Own(style),
        script=_Own(script),
        policy=f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'",
        **more,
    )
    return text.encode()


def grouped(needs: Iterable[Need]) -> list[list[Need]]:
    """Return ``needs`` in groups with the same next step, in the order of each group's first need."""
    groups: dict[tuple[str, ...], list[Need]] = {}
    for one in needs:
        groups.setdefault((one.what, one.word, one.hint, one.command, one.place), []).append(one)
    return list(groups.values())


def place_of(command: str) -> str:
    """Return where a next command has to run, empty for the reader's own machine."""
    return "on the node" if command.startswith(("attested ", "journalctl ", "systemctl ")) else ""


def plain(value: Any) -> Any:
    """Return a text on one line with control characters escaped, and any other value unchanged."""
    return visible(" ".join(value.splitlines())) if isinstance(value, str) else value


class _Own:
    """A text of this collection that the page contains unescaped."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __html__(self) -> str:
        return self._text


def _own(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """Return the source expression of ``text`` in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _finalized(value: Any) -> Any:
    """Return a value for the page; the result of a macro is already escaped."""
    return value if hasattr(value, "__html__") else plain(value)
