# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML that others wrote: plain data, or one kind of error, soon."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import (
    MAX_BYTES,
    MAX_DOCUMENTS,
    MAX_NODES,
    load_document,
    load_documents,
    load_json,
)

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
        pytest.param("? " * 5000 + "x", "as a key", id="keys in keys"),
        pytest.param("a: 1\na: 2\n", "a key twice", id="a key twice"),
        pytest.param("a: !!timestamp x\n", "a tag", id="a tag that its own reader cannot read"),
        pytest.param("a: !!python/object/apply:os.getcwd []\n", "a tag", id="a tag of code"),
        pytest.param("a: 0x" + "9" * 5000, "too many digits", id="a number that cannot be printed"),
        pytest.param("? {a: b}\n: c\n", "as a key", id="a mapping as a key"),
        pytest.param("a: &x 1\n*x : 2\n", "an alias", id="an alias as a key"),
        pytest.param("<<: {a: 1}\n", "a merge", id="a merge without an alias"),
        pytest.param("1: a\n0x1: b\n", "a key twice", id="a key twice, spelt in two ways"),
        pytest.param("a: .inf", "not finite", id="a number without end"),
        pytest.param("a: 0x_", "invalid number", id="a number without digits"),
        pytest.param("- a\n" * (MAX_NODES + 1), "values", id="a long list"),
        pytest.param("---\n" * (MAX_DOCUMENTS + 1), "documents", id="many documents"),
        pytest.param("a: " + "x" * MAX_BYTES, "bytes", id="a long text"),
        pytest.param('a: "\\ud800"', "Unicode character escape", id="a lone surrogate, escaped"),
        pytest.param("a: \ud800", "UTF-8", id="a lone surrogate"),
        pytest.param("a: [", "line 2, column 1", id="no YAML"),
        pytest.param("\x00", "no YAML", id="no text"),
    ],
)
def test_everything_else_is_one_error(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        load_documents(text)


@pytest.mark.parametrize("date", ["2001-13-45", "0000-00-00", "2027-01-31", "9999-12-31T23:59:59-14:00"])
def test_what_looks_like_a_date_is_a_text(date: str) -> None:
    assert load_documents(f"a: {date}\n") == [{"a": date}]


def test_one_document_is_given_alone() -> None:
    assert load_document(b"\xef\xbb\xbfa: 1\n") == {"a": 1}
    assert load_document("# nothing\n") is None
    with pytest.raises(ValueError, match="2 documents"):
        load_document("--- 1\n--- 2\n")


@pytest.mark.parametrize("loader", ["CBaseLoader", "BaseLoader"])
def test_both_parsers_of_yaml_are_bounded_alike(loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "CBaseLoader", getattr(yaml, loader))
    assert load_documents("a: [1, 'b', 2.5, ~, yes]\nb: {c: 'é'}\n") == [
        {"a": [1, "b", 2.5, None, True], "b": {"c": "é"}}
    ]
    for text, problem in ((BOMB, "an alias"), ("- " * 100 + "x", "levels"), ("a: 1\na: 2\n", "a key twice")):
        with pytest.raises(ValueError, match=problem):
            load_documents(text)


def test_json_gives_what_it_spells() -> None:
    text = '{"a": [1, -2.5, true, null, "é\\u00e9\\ud83d\\ude00", "[[[{{{"]}'
    assert load_json(text) == load_json(text.encode()) == {"a": [1, -2.5, True, None, "éé😀", "[[[{{{"]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param('{"a": 1, "a": 1}', "twice", id="a member twice"),
        pytest.param('{"b": [{"a": 1, "c": 2, "a": 3}]}', "twice", id="a member twice, deep"),
        pytest.param("[" * 100_000, "brackets open", id="brackets"),
        pytest.param('{"a":' * 33 + "1" + "}" * 33, "brackets open", id="levels that are closed"),
        pytest.param("9" * 33, "too many digits", id="a number that cannot be printed"),
        pytest.param("1e999", "not finite", id="an infinite number"),
        pytest.param("[NaN]", "not finite", id="no number at all"),
        pytest.param("1." + "9" * 5000, "too many digits", id="a fraction without end"),
        pytest.param('"\\ud800"', "lone surrogate", id="a lone surrogate, escaped"),
        pytest.param('"\ud800"', "UTF-8", id="a lone surrogate"),
        pytest.param('["' + '\\"' * 100_000, "Unterminated", id="quotes that never end"),
        pytest.param('"' + "x" * MAX_BYTES, "bytes", id="a long text"),
        pytest.param(b"\xff", "UTF-8", id="no text"),
        pytest.param("", "Expecting value", id="nothing"),
        pytest.param("{a: 1}", "Expecting property", id="YAML"),
    ],
)
def test_other_json_is_one_error_without_the_text(text: str | bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        load_json(text)
    assert caught.type is ValueError
    assert caught.value.__context__ is None
    assert len(str(caught.value)) < 100
