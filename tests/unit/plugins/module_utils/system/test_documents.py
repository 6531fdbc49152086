# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML that others wrote: plain data, or one kind of error, soon."""

from __future__ import annotations

import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.system import load_documents, unique_members

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{one}: &{one} [{','.join([f'*{before}'] * 9)}]\n" for before, one in zip("abcde", "bcdef", strict=True)
)


def test_plain_data_is_read() -> None:
    text = "a: 1\nb: [x, {c: true}]\n---\n---\nd: 0x10\n"
    assert load_documents(text) == [{"a": 1, "b": ["x", {"c": True}]}, {"d": 16}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(BOMB, "an alias", id="aliases that unfold to half a million"),
        pytest.param("[" * 30_000, "brackets open", id="brackets that cost half a minute"),
        pytest.param("- " * 100 + "x", "levels", id="a hundred levels without a bracket"),
        pytest.param("? " * 5000 + "x", "levels", id="keys in keys"),
        pytest.param("a: 1\na: 2\n", "a key twice", id="a key twice"),
        pytest.param("a: !!timestamp x\n", "a tag", id="a tag that its own reader cannot read"),
        pytest.param("a: !!python/object/apply:os.getcwd []\n", "a tag", id="a tag of code"),
        pytest.param("a: 0x" + "9" * 5000, "too many digits", id="a number that cannot be printed"),
        pytest.param("a: 2001-13-45", "month", id="a date that is none"),
        pytest.param("? {a: b}\n: c\n", "unhashable", id="a mapping as a key"),
        pytest.param("a: [", "parsing", id="no YAML"),
        pytest.param("\x00", "special characters", id="no text"),
    ],
)
def test_everything_else_is_one_error(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        load_documents(text)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '{"b": [{"a": 1, "c": 2, "a": 3}]}'])
def test_json_with_a_member_twice_is_refused_at_any_depth(text: str) -> None:
    assert json.loads('{"b": [{"a": 1, "c": {"a": 2}}]}', object_pairs_hook=unique_members)["b"][0]["c"] == {"a": 2}
    with pytest.raises(ValueError, match="twice"):
        json.loads(text, object_pairs_hook=unique_members)
