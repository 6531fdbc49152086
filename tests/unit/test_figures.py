# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The script that measures the size of the house: graphs, lines, the profiler and the table."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support import figures, house
from ansible_collections.attested.kubernetes.tests.support.figures import (
    OPERATIONS,
    Profiler,
    floors,
    function_lines,
    import_lines,
    reason_codes,
    table,
)
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = '''\
"""A file."""
from __future__ import annotations
from typing import (
    TYPE_CHECKING,
)
if TYPE_CHECKING:
    import os
__all__ = [
    "one",
]
class Reason(Enum):
    """Why."""
    A = 1
    B = 2
class Other(Enum):
    C = 3
def one():
    """Say
    nothing."""
    return 1
async def two(): return 2
'''
TREE = ast.parse(SOURCE)


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        pytest.param({}, 0, id="no nodes"),
        pytest.param({"a": set(), "b": set()}, 1, id="no edges"),
        pytest.param({"a": {"b", "c"}, "b": {"c"}, "c": set()}, 3, id="the longest chain counts"),
        pytest.param({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}, 3, id="a cycle counts once"),
        pytest.param({"a": {"a"}}, 1, id="an edge to itself"),
    ],
)
def test_floors(graph: dict[str, set[str]], count: int):
    assert floors(graph) == count


def test_nodes_that_reach_each_other_are_a_cycle():
    cycle = house.cycle_of({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}})
    assert cycle == {"a": {"a"}, "b": {"b", "c"}, "c": {"b", "c"}, "d": {"d"}}


def test_all_and_type_checking_count_as_imports():
    assert import_lines(TREE) == 1 + 3 + 2 + 3


def test_a_function_is_counted_without_its_docstring():
    assert sorted(function_lines(TREE)) == [1, 2]


def test_only_members_of_reason_are_reason_codes():
    assert reason_codes(TREE) == 2


def test_the_profiler_records_functions_and_the_deepest_stack(tmp_path: Path):
    (tmp_path / "room").mkdir()
    known: dict[str, object] = {}
    for name, text in {
        "room/a.py": "def low(): return [one for one in (1, 2)]",
        "b.py": "def high(act): return (lambda: act())()",
    }.items():
        (tmp_path / name).write_text(text)
        exec(compile(text, tmp_path / name, "exec"), known)
    profiler = Profiler(tmp_path)
    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        known["low"]()  # type: ignore[operator] # the test has not started
        assert profiler.functions == set()
        profiler.is_on = True
        known["high"](known["low"])  # type: ignore[operator]
    finally:
        sys.setprofile(before)
    assert profiler.functions == {("b.py", "high", 1), ("room/a.py", "low", 1)}
    assert profiler.counts() == {"functions": 2, "files": 2, "packages": 1, "deepest stack": 2}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.title)
def test_each_operation_has_a_test(operation: figures.Operation):
    (found,) = (ROOT / "tests").glob(operation.file)
    assert any(
        operation.tests in line for line in found.read_text(encoding="utf-8").splitlines() if "def test_" in line
    )


def test_the_table_shows_figures_of_only_one_measurement():
    before, now = {"files": 1486, "gone": 1}, {"files": 1190, "new": "not measured: why"}
    assert table([("7131af5", before), ("now", now)]).splitlines() == [
        "| figure | 7131af5 | now |",
        "| --- | --- | --- |",
        "| files | 1,486 | 1,190 |",
        "| new | - | not measured: why |",
        "| gone | 1 | - |",
    ]


def test_without_a_lab_no_memory_is_measured(tmp_path: Path):
    (said,) = figures.of_memory(tmp_path / "none", ["attested"]).values()
    assert said == "not measured: no lab runs"
