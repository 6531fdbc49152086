# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every attack has one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support import threats
from ansible_collections.attested.kubernetes.tests.support.threats import Row

if TYPE_CHECKING:
    from collections.abc import Callable


def test_every_attack_has_one_row_and_every_row_its_check() -> None:
    assert threats.problems() == []


def test_what_is_tried_or_open_is_at_least_the_42_anchors(counted: Callable[[str], None]) -> None:
    tried = len(threats.threats())
    counted(f"attacks: {tried} tried, {len(threats.OPEN)} open")
    assert tried + len(threats.OPEN) >= 42


def test_an_attack_without_a_row_is_noticed(monkeypatch) -> None:
    tried = threats.threats()
    monkeypatch.setattr(threats, "threats", lambda: {one: tried[one] for one in tried if one != "S38"})
    assert threats.problems() == ["S38: expected one row, got 0"]


def test_an_attack_that_is_tried_is_not_open(monkeypatch) -> None:
    again = Row(id="S1", title="x", why="x")
    monkeypatch.setattr(threats, "OPEN", (*threats.OPEN, again))
    assert "S1: expected one row, got 2" in threats.problems()


def test_a_check_that_is_gone_or_refuses_with_another_code_is_noticed() -> None:
    code = "BINDING_MISMATCH"
    assert threats._problem_of_check("evidence/verify.py step 4", code) == ""
    assert "a step that refuses" in threats._problem_of_check("evidence/verify.py step 5", code)
    assert "a step of that number" in threats._problem_of_check("evidence/verify.py step 99", code)
    assert "a file that is there" in threats._problem_of_check("attestation/nothing.py", code)
