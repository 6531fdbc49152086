# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the mutation run changes, and when it fails."""

from __future__ import annotations

import ast
import re

import pytest
from ansible_collections.attested.kubernetes.tests.mutation.mutants import mutants_of
from ansible_collections.attested.kubernetes.tests.mutation.run import drawn
from ansible_collections.attested.kubernetes.tests.mutation.targets import NUMBERED, ROOT, TARGETS, UTILS

CHANGES = [
    pytest.param("if a != b: raise Refusal()", ["a != b => a == b", "=> False", "=> True", "=> pass"], id="a check"),
    pytest.param("return a and b", ["a and b => a or b", "a and b => a", "a and b => b"], id="a connection"),
    pytest.param("return a < 5", ["a < 5 => a <= 5", "a < 5 => a >= 5", "5 => 6"], id="a bound"),
    pytest.param("verify(a)", ["verify(a) => pass"], id="a step"),
    pytest.param("return join(a, b, c)", ["=> join(b, c)", "=> join(a, c)", "=> join(a, b)"], id="a part of a digest"),
    pytest.param("return Reason.QUOTE_DIGEST", ["Reason.QUOTE_DIGEST => Reason.COMMAND_MISSING"], id="a reason"),
    pytest.param("return not a", ["not a => a"], id="a negation"),
    pytest.param("return {1: a, 2: b}", ["=> {2: b}", "=> {1: a}"], id="an entry of a table"),
]


@pytest.mark.parametrize(("body", "expected"), CHANGES)
def test_each_small_lie_is_told(body, expected):
    told = [str(one) for one in mutants_of(f"def f():\n    {body}\n")]
    assert [change for change in expected if not any(one.endswith(change) for one in told)] == []


def test_a_mutant_is_the_source_but_for_its_change():
    source = "def f(a):\n    if a > 1:\n        raise Refusal('no')\n    return a\n"
    changed = {ast.unparse(one.tree) for one in mutants_of(source)}
    assert ast.unparse(ast.parse(source)) not in changed
    assert "def f(a):\n    if a >= 1:\n        raise Refusal('no')\n    return a" in changed


def test_words_for_a_person_stay():
    told = [one.change for one in mutants_of("def f():\n    raise Refusal('word', reason=Reason.AK_MISMATCH)\n")]
    assert [change for change in told if change.startswith("'word'")] == []
    assert any("COMMAND_MISSING" in change for change in told)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_each_target_and_its_tests_are_there(target):
    assert (UTILS / target).is_file()
    assert [path for path in TARGETS[target] if not (ROOT / path).exists()] == []
    assert next(mutants_of((UTILS / target).read_text())).line > 0


def numbers_its_checks(target):
    tree = ast.parse((UTILS / target).read_text())
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    told = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    return any(re.search(r"^ *1\. ", one, re.MULTILINE) for one in told)


def test_the_targets_whose_docstrings_number_their_checks_are_those_where_nothing_may_survive():
    assert {target for target in TARGETS if numbers_its_checks(target)} == NUMBERED


def test_a_commit_draws_its_files_and_other_commits_draw_others():
    targets = sorted(TARGETS)
    draws = [drawn(targets, count=3, seed=f"commit {number}") for number in range(100)]
    assert draws[0] == drawn(targets[::-1], count=3, seed="commit 0") != draws[1]
    assert {len(one) for one in draws} == {3}
    assert {target for one in draws for target in one} == set(targets)
    assert drawn(targets, count=0, seed="commit 0") == targets
