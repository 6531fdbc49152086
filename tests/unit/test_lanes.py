# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which stages run side by side, and what is heard of them."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests import run
from ansible_collections.attested.kubernetes.tests.support.lanes import Order, run_in_lanes, run_named

if TYPE_CHECKING:
    from pathlib import Path

ORDER = Order(needs={"e2e": frozenset({"bundle"})}, apart=(frozenset({"e2e", "molecule"}),))


@pytest.mark.parametrize(
    ("waiting", "running", "begins"),
    [
        pytest.param(["lint", "unit"], [], "lint", id="the first"),
        pytest.param(["e2e", "lint"], ["bundle"], "lint", id="not before what it needs has ended"),
        pytest.param(["e2e", "bundle"], [], "bundle", id="nor before it has begun"),
        pytest.param(["e2e"], ["lint"], "e2e", id="a need that nobody asked for"),
        pytest.param(["molecule", "unit"], ["e2e"], "unit", id="not beside one that shares"),
        pytest.param(["molecule"], ["e2e"], None, id="nobody may"),
    ],
)
def test_who_begins_next(waiting: list[str], running: list[str], begins: str | None) -> None:
    """A stage waits for what it needs and for what it shares something with."""
    assert ORDER.next_of(waiting, running) == begins


def test_as_many_at_once_as_there_are_lanes() -> None:
    """Two run together (each waits for the other here), never three, and each result bears its name."""
    pair, together, most = threading.Barrier(2, timeout=30), set[str](), 0

    def stage(name: str) -> str:
        nonlocal most
        together.add(name)
        most = max(most, len(together))
        pair.wait()
        together.discard(name)
        return name.upper()

    assert run_in_lanes(["a", "b", "c", "d"], stage, lanes=2, order=Order()) == {name: name.upper() for name in "abcd"}
    assert most == 2


def test_what_shares_something_never_meets() -> None:
    """Three of one group take turns, though there are lanes for all: each looks out for another, and sees none."""
    pair, met = threading.Barrier(2), list[str]()

    def stage(name: str) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            pair.wait(timeout=0.1)
            met.append(name)
        pair.reset()

    run_in_lanes(["a", "b", "c"], stage, lanes=3, order=Order(apart=(frozenset("abc"),)))
    assert met == []


def test_a_line_bears_the_name_of_its_stage(capsys: pytest.CaptureFixture[str]) -> None:
    """Both outputs of a program come line by line, and its exit code is the answer."""
    program = "import sys; print('one'); sys.stdout.flush(); print('two', file=sys.stderr); sys.exit(3)"
    assert run_named("unit", [sys.executable, "-c", program]) == 3
    assert capsys.readouterr().out.splitlines() == ["unit           | one", "unit           | two"]


def test_every_name_of_the_order_is_a_stage() -> None:
    """A stage that was renamed would lose what holds it back."""
    named = {*run.ORDER.needs, *(name for names in run.ORDER.needs.values() for name in names)}
    assert named | {name for group in run.ORDER.apart for name in group} <= set(run.STAGES)


def test_a_stage_that_says_nothing_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before its report: one failure, not none."""
    monkeypatch.setattr(run, "run_named", lambda _name, _argv: -9)
    assert run.in_own_process("unit").counts == run.Counts(failed=1)


def test_another_tree_is_not_tested_in_place_of_this(tmp_path: Path) -> None:
    """A caller's PYTHONPATH names a second clone."""
    assert run.other_tree() == ""
    reason = run.other_tree(str(tmp_path / "lanes.py"))
    assert str(run.ROOT) in reason
    assert "unset PYTHONPATH" in reason


@pytest.mark.parametrize(
    ("name", "running", "may"),
    [
        pytest.param("molecule", {"e2e"}, True, id="molecule beside e2e"),
        pytest.param("control_planes", {"e2e", "molecule"}, False, id="no third lab"),
        pytest.param("matrix", {"e2e"}, False, id="matrix has two labs of its own"),
        pytest.param("matrix", {"molecule"}, False, id="nor beside molecule"),
        pytest.param("e2e", {"bundle"}, False, id="not before the bundle"),
        pytest.param("molecule", {"bundle"}, False, id="nor molecule"),
    ],
)
def test_which_labs_are_up_at_once(name: str, running: set[str], may: bool) -> None:
    """Two at most, of which one is that of e2e: it looks at what its own leaves behind once the other is gone."""
    assert (run.ORDER.next_of([name], running) == name) is may
