# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of log lines: validation of lines, and the lines that the code writes, from its syntax."""

from __future__ import annotations

import ast
import functools
import sys
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core import logs
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import load_json
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import FrameType

FILE = ROOT / "docs" / "monitoring" / "log.schema.json"
UTILS = ROOT / "plugins" / "module_utils"
_HEARERS = frozenset({"_log", "_observer", "_story", "log", "story"})
"""The functions that write a line."""


@functools.cache
def schema() -> dict[str, Any]:
    """Return the schema."""
    found: dict[str, Any] = load_json(FILE.read_bytes())
    return found


@functools.cache
def _validator(event: str) -> Draft202012Validator:
    """Return the schema of ``event`` alone, which is faster than the schema of all events."""
    known = schema()["$defs"].get(event, {"not": {}})
    return Draft202012Validator({"allOf": [{**schema(), "allOf": []}, known]})


def faults(line: Mapping[str, Any]) -> list[str]:
    """Return the errors in one line."""
    return [error.message for error in _validator(str(line.get("event"))).iter_errors(line)]


def require(lines: Iterator[Mapping[str, Any]] | list[dict[str, Any]]) -> None:
    """Raise AssertionError for lines that the schema rejects."""
    wrong = [f"{line}: {'; '.join(found)}" for line in lines if (found := faults(line))]
    assert wrong == [], f"expected lines of {FILE.name}, got: {wrong}"


def written_in(path: Path) -> Iterator[tuple[str, frozenset[str], bool]]:
    """Return event, field names and whether more may follow (``**``) for each line that a file writes, from its syntax.

    Computed event names are left out; a test covers the services that compute them.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        told, hearer = node.func.attr, node.func.value
        name = hearer.attr if isinstance(hearer, ast.Attribute) else hearer.id if isinstance(hearer, ast.Name) else ""
        if told not in {"event", "request"} or name not in _HEARERS:
            continue
        fields = frozenset(one.arg for one in node.keywords if one.arg)
        more = any(one.arg is None for one in node.keywords) or told == "request"
        for word in _words(node.args[0]):
            yield word, fields, more


def _words(node: ast.expr) -> list[str]:
    """Return all constants that may be the name of an event."""
    if isinstance(node, ast.IfExp):
        return [*_words(node.body), *_words(node.orelse)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


_wrong: list[str] = []


def watch_this_process() -> None:
    """Validate each line that code below plugins/ writes from now on in this process; `require_none_wrong` raises.

    The writing call does not raise, because a thread or a task may swallow its errors.
    """
    write = logs.Log.event

    def event(self: logs.Log, name: str, /, **fields: Any) -> None:
        if (file := _writer(sys._getframe(1))) and (name in schema()["$defs"] or file != "unix_rpc.py"):
            clean = {key: logs._clean(value) for key, value in fields.items()}
            line = {"time": "2026-11-21T12:00:00+00:00", "event": name, **clean}
            _wrong.extend(f"{line}: {fault}" for fault in faults(line))
        write(self, name, **fields)

    logs.Log.event = event  # type: ignore[method-assign]


def require_none_wrong() -> None:
    """Raise AssertionError for lines since the last call that the schema rejects."""
    found, _wrong[:] = list(_wrong), []
    assert found == [], f"expected lines of {FILE.name}, got: {found}"


def _writer(frame: FrameType | None) -> str:
    """Return the name of the writing file: code of ours, neither a test nor `Log.request` itself."""
    while frame is not None and frame.f_code.co_filename.endswith(("/core/logs.py", "/contextlib.py")):
        frame = frame.f_back
    file = frame.f_code.co_filename if frame is not None else ""
    return file.rpartition("/")[2] if "/plugins/module_utils/" in file and "/tests/" not in file else ""
