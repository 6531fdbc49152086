# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of users (``attested_*``): their use in playbooks, and their text in `docs/variables.yml`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXTS = ROOT / "docs" / "variables.yml"
SITES = ("inventory/example/group_vars/nodes/cluster.yml", "roles/lab/templates/lab.yml.j2")
_NAME = re.compile(r"\battested_[a-z0-9_]+")
_DEFAULT = re.compile(r"\b(attested_[a-z0-9_]+) *\| *default\(")
_TEXT = re.compile(r"^ *(?:- )?(?:#.*|name: .*)$", re.MULTILINE)
_OURS = frozenset(
    {
        "attested_admin_request",
        "attested_answering",
        "attested_brought_policy",
        "attested_cluster_id",
        "attested_node_name",
    }
)
"""Variables that the bootstrapper or playbooks pass to playbooks; the first is a group."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: its text, the playbooks that read it, their defaults, and whether it is required."""

    words: dict[str, str]
    readers: tuple[str, ...]
    defaults: tuple[str, ...]
    required: bool


@cache
def sections() -> list[dict[str, Any]]:
    """Return the content of `docs/variables.yml`."""
    found: list[dict[str, Any]] = yaml.safe_load(TEXTS.read_text(encoding="utf-8"))
    return found


def described() -> list[str]:
    """Return the documented names in order."""
    return [name for section in sections() for name in section["variables"]]


def read_by_playbooks() -> set[str]:
    """Return the names that a playbook reads and none sets."""
    sources = [_code(path) for path in _sources()]
    names = {name for text in sources for name in _NAME.findall(text)}
    return names - _set_by_playbooks() - _OURS


def read_somewhere(name: str) -> bool:
    """Return whether a playbook, a role or code on the admin's machine uses the variable."""
    places = (*_sources(), *(ROOT / "roles").glob("*/*/*.yml"), *(ROOT / "plugins").rglob("*.py"))
    return any(re.search(rf"\b{name}\b", _code(path)) for path in places)


def variable(name: str) -> Variable:
    """Return all facts of one name."""
    words = next(section["variables"][name] for section in sections() if name in section["variables"])
    uses = {path: _code(path) for path in _sources()}
    readers = {one for path, text in uses.items() if re.search(rf"\b{name}\b", text) for one in _playbooks_of(path)}
    defaults = {value for text in uses.values() for known, value in defaults_in(text) if known == name}
    bare = any(re.search(rf"\b{name}\b(?! *\| *default\()", text) for text in uses.values())
    asked = any(re.search(rf"\b{name} is (not )?defined", text) for text in uses.values())
    required = bare and not asked and not defaults - {"omit"} and "written_by" not in words
    return Variable(words, tuple(sorted(readers)), tuple(sorted(defaults)), required)


def set_in_sites() -> dict[str, list[str]]:
    """Return the names that the example and the lab set."""
    lines = {site: (ROOT / site).read_text(encoding="utf-8").splitlines() for site in SITES}
    return {site: [line.partition(":")[0] for line in text if _NAME.match(line)] for site, text in lines.items()}


def _sources() -> list[Path]:
    return sorted(path for path in (ROOT / "playbooks").rglob("*") if path.suffix in {".yml", ".j2"})


def _code(path: Path) -> str:
    return _TEXT.sub("", path.read_text(encoding="utf-8"))


def defaults_in(text: str) -> Iterator[tuple[str, str]]:
    """Return the variables and defaults in ``text``; a literal in the form of the user."""
    for match in _DEFAULT.finditer(text):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield match[1], _plain(text[match.end() : end - 1])


def _plain(expression: str) -> str:
    """Return a literal in the form of the user, other values unchanged."""
    expression = expression.removesuffix(", true")
    if expression in {"true", "false"}:
        return expression
    try:
        value = ast.literal_eval(expression)
    except (ValueError, SyntaxError):
        return expression
    return value if isinstance(value, str) else str(value).replace("'", '"')


def _set_by_playbooks() -> set[str]:
    return {name for path in _sources() if path.suffix == ".yml" for name in _keys(yaml.safe_load(path.read_text()))}


def _keys(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for one in node:
            yield from _keys(one)
    elif isinstance(node, dict):
        yield from (str(name) for name in node if _NAME.match(str(name)))
        if "register" in node:
            yield str(node["register"])
        for one in node.values():
            yield from _keys(one)


def _playbooks_of(path: Path) -> Iterator[str]:
    if path.parent == ROOT / "playbooks":
        if not path.stem.startswith("machine_"):  # only the bootstrapper runs these
            yield path.stem
        return
    for book in (ROOT / "playbooks").glob("*.yml"):
        if not book.stem.startswith("machine_") and f"{path.parent.name}/{path.name}" in book.read_text(
            encoding="utf-8"
        ):
            yield book.stem
