# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Log lines: one a request, readable by machine and person, with nothing in them that a peer could break or steal."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log, open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from hypothesis import given
from hypothesis import strategies as st


class StoppedClock:
    """Noon, and half a second more at each look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC)

    def monotonic(self) -> float:
        self.seconds += 0.5
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def logged(**fields: Any) -> tuple[str, dict[str, Any]]:
    """Return one event, as a terminal shows it and as the journal keeps it."""
    readable, kept = io.StringIO(), io.StringIO()
    Log(readable, as_json=False, clock=StoppedClock()).event("join", **fields)
    Log(kept, as_json=True, clock=StoppedClock()).event("join", **fields)
    return readable.getvalue(), json.loads(kept.getvalue())


def test_both_forms_say_the_same() -> None:
    """Numbers stay numbers, plain words have no quotes, absent values are left out for people."""
    readable, kept = logged(node="w-1", count=2, ok=True, nothing=None, why="two words")
    assert readable == '12:00:00 join node=w-1 count=2 ok=true why="two words"\n'
    assert kept == {
        "time": "2026-11-21T12:00:00+00:00",
        "event": "join",
        "node": "w-1",
        "count": 2,
        "ok": True,
        "nothing": None,
        "why": "two words",
    }


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_no_name_leaves_its_line(name: str) -> None:
    """Line feeds, escapes, lone surrogates: one line of plain ASCII each, and the journal gives the name back."""
    readable, kept = logged(node=name)
    assert readable.isascii()
    assert readable.count("\n") == 1
    assert "\x1b" not in readable
    assert kept["node"] == name


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(b"thirty-two bytes of a secret key", "<32 bytes>", id="bytes are their number"),
        pytest.param(["secret"], "<list>", id="a list is its kind"),
        pytest.param(ValueError("secret"), "<ValueError>", id="an object is its kind"),
        pytest.param("x" * 2001, "x" * 2000 + "… (2001 characters)", id="long text is cut"),
    ],
)
def test_what_is_no_plain_value_shows_no_content(value: Any, shown: str) -> None:
    """A key that slips into a call of the log stays out of the log."""
    assert shown == logged(value=value)[1]["value"]


def request_line(outcome: BaseException | None, **fields: Any) -> dict[str, Any]:
    """Return the line of a request that ends with ``outcome``."""
    kept = io.StringIO()
    log = Log(kept, as_json=True, clock=StoppedClock())
    expected = () if outcome is None else (type(outcome),)
    with suppress(*expected), log.request("call", method="/a.B/C") as line:
        line.set(**fields)
        if outcome is not None:
            raise outcome
    (only,) = kept.getvalue().splitlines()
    return {key: value for key, value in json.loads(only).items() if key not in {"time", "event", "method"}}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        pytest.param(None, {"outcome": "ok"}, id="success"),
        pytest.param(
            Refusal("expected a, got b", reason=Reason.NONCE_MALFORMED),
            {"outcome": "refused", "reason": "NONCE_MALFORMED", "detail": "expected a, got b"},
            id="a refusal has its code and its story",
        ),
        pytest.param(
            KeyError("x"),
            {"outcome": "failed", "reason": "INTERNAL", "detail": "KeyError: 'x'"},
            id="an unexpected error is INTERNAL",
        ),
        pytest.param(asyncio.CancelledError(), {"outcome": "cancelled"}, id="a peer that went away is no failure"),
    ],
)
def test_a_request_is_one_line(outcome: BaseException | None, expected: dict[str, Any]) -> None:
    """However it ends, with what the handler added and how long it took."""
    assert {**expected, "node": "w-1", "seconds": 0.5} == request_line(outcome, node="w-1")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "is_json"),
    [
        pytest.param(Terminal(), {}, False, id="a person at a terminal"),
        pytest.param(Terminal(), {"JOURNAL_STREAM": "8:1"}, True, id="systemd"),
        pytest.param(io.StringIO(), {}, True, id="a file"),
    ],
)
def test_the_form_follows_the_reader(stream: io.StringIO, environ: dict[str, str], is_json: bool) -> None:
    """JSON for machines, key=value for people."""
    open_log(stream=stream, environ=environ).event("started")
    assert stream.getvalue().startswith("{") == is_json
