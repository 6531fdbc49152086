# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record inside the volume against the counter outside: what was put back is refused, what was cut is not."""

from __future__ import annotations

import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.generation import (
    Record,
    parse_record,
    render_record,
    verify_record,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

HEADER, OLDER = "ab" * 32, "cd" * 32


def record(generation: int = 7, header: str = HEADER) -> Record:
    return Record(generation=generation, header=header)


@pytest.mark.parametrize(
    ("found", "counter"),
    [
        pytest.param(record(), 7, id="as it was left"),
        pytest.param(record(8), 7, id="cut before the counter followed"),
        pytest.param(record(header=""), 7, id="the first unlock was cut"),
    ],
)
def test_a_disk_as_it_was_left_is_taken(found: Record, counter: int) -> None:
    assert verify_record(found, counter=counter, header=HEADER) == found


@pytest.mark.parametrize(
    ("found", "counter", "header", "code"),
    [
        pytest.param(record(6), 7, HEADER, "STATE_DISK_ROLLED_BACK", id="an older state of the disk"),
        pytest.param(record(1, ""), 7, HEADER, "STATE_DISK_ROLLED_BACK", id="its very first state"),
        pytest.param(record(9), 7, HEADER, "STATE_DISK_COUNTER_LOST", id="a counter that went back"),
        pytest.param(record(), None, HEADER, "STATE_DISK_COUNTER_LOST", id="no counter"),
        pytest.param(record(), 7, OLDER, "STATE_DISK_HEADER_CHANGED", id="an older header"),
        pytest.param(record(8, ""), 7, HEADER, "STATE_DISK_HEADER_CHANGED", id="a record ahead that names no header"),
        pytest.param(None, 7, HEADER, "STATE_DISK_RECORD", id="no record"),
    ],
)
def test_what_was_put_back_is_refused(found: Record | None, counter: int | None, header: str, code: str) -> None:
    assert code_of(lambda: verify_record(found, counter=counter, header=header)) == code


def test_a_record_is_read_as_it_was_written() -> None:
    assert parse_record(render_record(record())) == record()
    assert parse_record(render_record(record(header=""))) == record(header="")


def test_a_record_names_what_its_header_is_under() -> None:
    named = Record(generation=7, header=HEADER, key="2-" + "ab" * 8)
    assert parse_record(render_record(named)) == named
    assert json.loads(render_record(named))["version"] == 2
    assert json.loads(render_record(record()))["version"] == 1


def _with(**changes: object) -> bytes:
    return json.dumps({"version": 1, "generation": 7, "header": HEADER, **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(_with(version=2), id="a version without its member"),
        pytest.param(_with(more=1), id="another member"),
        pytest.param(_with(key="2-" + "ab" * 8), id="a name in the form of before"),
        pytest.param(_with(version=2, key=""), id="a name that is none"),
        pytest.param(_with(version=2, key=2), id="a number as name"),
        pytest.param(_with(version=[2]), id="a list as version"),
        pytest.param(_with(generation=True), id="a truth value"),
        pytest.param(_with(generation=0), id="a generation that never was"),
        pytest.param(_with(generation="7"), id="a text"),
        pytest.param(_with(header="AB" * 32), id="another spelling"),
        pytest.param(_with(header=None), id="no header"),
        pytest.param(_with() + b" " * 2000, id="too long"),
        pytest.param(b'{"version":1,"generation":7,"generation":8,"header":""}', id="a member twice"),
    ],
)
def test_anything_else_is_no_record(data: bytes) -> None:
    assert code_of(lambda: parse_record(data)) == "STATE_DISK_RECORD"
