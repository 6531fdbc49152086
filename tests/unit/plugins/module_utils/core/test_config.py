# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration files: every mistake at once, and nothing guessed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import load_config
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError, SystemFault


class Size(Enum):
    """What may be chosen."""

    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A configuration with a field of every kind."""

    host: str
    port: int
    endpoints: tuple[str, ...] = ()
    floor_seconds: float = 0.5
    socket: Path | None = None
    verbose: bool = False
    size: Size = Size.SMALL


def loaded(tmp_path: Path, text: str) -> Example:
    """Return what ``text`` says."""
    file = tmp_path / "example.yml"
    file.write_text(text, encoding="utf-8")
    return load_config(Example, file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("{host: a, port: 1}", Example(host="a", port=1), id="the required ones alone"),
        pytest.param(
            "host: a\nport: 1\nendpoints: [b, c]\nfloor_seconds: 2\nsocket: /run/x\nverbose: true\n",
            Example(host="a", port=1, endpoints=("b", "c"), floor_seconds=2.0, socket=Path("/run/x"), verbose=True),
            id="all",
        ),
        pytest.param("{host: a, port: 1, size: large}", Example(host="a", port=1, size=Size.LARGE), id="a choice"),
        pytest.param("{host: a, port: 1, socket: null}", Example(host="a", port=1), id="null where it may be"),
    ],
)
def test_good_files(tmp_path: Path, text: str, expected: Example) -> None:
    """Values have the type of their field."""
    assert expected == loaded(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("{host: a, port: 1, prot: 2}", "unknown entry 'prot'", id="a misspelt entry"),
        pytest.param("{port: 1}", "missing entry 'host'", id="a missing entry"),
        pytest.param("{host: a, port: '1'}", "'port': expected int, got str", id="text for a number"),
        pytest.param("{host: a, port: true}", "'port': expected int, got bool", id="a boolean for a number"),
        pytest.param("{host: a, port: 1, verbose: 1}", "'verbose': expected bool", id="a number for a boolean"),
        pytest.param("{host: a, port: 1, verbose: null}", "'verbose': expected bool", id="null where it may not be"),
        pytest.param("{host: a, port: 1, endpoints: b}", "expected a list of strings", id="text for a list"),
        pytest.param("{host: a, port: 1, endpoints: [1]}", "expected a list of strings", id="a number in a list"),
        pytest.param("{host: a, port: 1, size: big}", "expected one of small, large, got str", id="no such choice"),
        pytest.param(
            "{host: a, port: 1, size: [small]}", "expected one of small, large, got list", id="a list to choose"
        ),
        pytest.param("[host]", "expected a mapping", id="a list"),
        pytest.param("", "expected a mapping", id="nothing"),
        pytest.param("{1: a}", "expected a mapping", id="a number as name"),
        pytest.param("{host: [", "expected YAML", id="no YAML"),
        pytest.param("!!python/object/apply:os.getpid []", "expected YAML", id="a tag that would run code"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str) -> None:
    """With what was expected."""
    with pytest.raises(SiteError, match="CONFIG_INVALID") as caught:
        loaded(tmp_path, text)
    assert said in caught.value.message


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    """Nobody repairs a file entry by entry."""
    with pytest.raises(SiteError) as caught:
        loaded(tmp_path, "{port: x, foo: 1}")
    assert all(said in caught.value.message for said in ("'foo'", "'host'", "'port'"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """By its path."""
    with pytest.raises(SystemFault, match="FILE_UNUSABLE"):
        load_config(Example, tmp_path / "none.yml")
