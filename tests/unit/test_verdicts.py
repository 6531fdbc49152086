# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On what a verdict that is kept hangs: whatever it could be another for is another key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.verdicts import WITHOUT, Sources, Verdicts

if TYPE_CHECKING:
    from pathlib import Path

OURS = "ansible_collections.attested.kubernetes"
FILES = {
    "plugins/modules/one.py": f"from {OURS}.plugins.module_utils.pack import name\n",
    "plugins/modules/other.py": "import os\n",
    "plugins/module_utils/pack/__init__.py": "from .inner import name\n",
    "plugins/module_utils/pack/inner.py": "def late():\n    from .. import deep\n",
    "plugins/module_utils/deep.py": "name = 1\n",
    "plugins/module_utils/alone.py": "name = 1\n",
    "tests/unit/test_one.py": f"import {OURS}.plugins.modules.one\n",
}
HANGING = "plugins/modules/one.py"


def keys(root: Path, changes: dict[str, str] | None = None, *, ground: str = "") -> dict[str, str]:
    for name, text in {**FILES, **(changes or {})}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sources = Sources(root)
    return {name: sources.key(name, ground=ground) for name in sources.names}


def changed(root: Path, name: str, text: str) -> set[str]:
    """Return whose key is another once a file says something else."""
    before = keys(root)
    after = keys(root, {name: text})
    return {one for one in before if after.get(one) != before[one]}


def test_the_same_tree_has_the_same_keys(tmp_path: Path) -> None:
    assert keys(tmp_path / "a") == keys(tmp_path / "b")
    assert len(set(keys(tmp_path / "a").values())) == len(FILES)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        pytest.param("plugins/modules/one.py", {"tests/unit/test_one.py"}, id="itself, and who imports it"),
        pytest.param(
            "plugins/module_utils/deep.py",
            {
                "plugins/module_utils/pack/inner.py",
                "plugins/module_utils/pack/__init__.py",
                "plugins/modules/one.py",
                "tests/unit/test_one.py",
            },
            id="by others, and in a function",
        ),
        pytest.param("plugins/module_utils/alone.py", set(), id="nobody imports it"),
    ],
)
def test_a_change_reaches_whoever_imports_it(tmp_path: Path, name: str, others: set[str]) -> None:
    assert changed(tmp_path, name, "# another\n") == {name, *others}


def test_a_file_that_takes_the_place_of_a_name_counts(tmp_path: Path) -> None:
    """The name was a variable of the package, and is a module of it now."""
    assert HANGING in changed(tmp_path, "plugins/module_utils/pack/name.py", "")


def test_what_imports_by_a_name_in_a_variable_hangs_on_all(tmp_path: Path) -> None:
    text = "import importlib\n\n\ndef load(name):\n    return importlib.import_module(name)\n"
    before = keys(tmp_path, {"plugins/modules/other.py": text})
    after = keys(tmp_path, {"plugins/modules/other.py": text, "plugins/module_utils/alone.py": ""})
    assert before["plugins/modules/other.py"] != after["plugins/modules/other.py"]


def test_other_tools_are_another_ground(tmp_path: Path) -> None:
    first, second = keys(tmp_path, ground="2.21.0"), keys(tmp_path, ground="2.21.1")
    assert not set(first.values()) & set(second.values())


def test_a_file_that_is_no_python_has_a_key_of_its_own(tmp_path: Path) -> None:
    assert changed(tmp_path, "plugins/module_utils/alone.py", "def (") == {"plugins/module_utils/alone.py"}


def test_only_what_was_found_good_is_left_out(tmp_path: Path) -> None:
    verdicts = Verdicts(tmp_path / "import", environ={})
    assert verdicts.left({"a": "1", "b": "2"}) == ("a", "b")
    verdicts.remember(["1"])
    assert verdicts.left({"a": "1", "b": "2"}) == ("b",)
    assert verdicts.left({"a": "3"}) == ("a",)


def test_the_night_looks_at_all(tmp_path: Path) -> None:
    Verdicts(tmp_path, environ={}).remember(["1"])
    assert Verdicts(tmp_path, environ={WITHOUT: "1"}).left({"a": "1"}) == ("a",)


def test_what_nobody_asked_for_in_a_month_is_forgotten(tmp_path: Path) -> None:
    verdicts = Verdicts(tmp_path, environ={})
    verdicts.remember(["1", "2"])
    os.utime(tmp_path / "1", (0, 0))
    verdicts.remember(["2"])
    assert verdicts.left({"a": "1", "b": "2"}) == ("a",)
