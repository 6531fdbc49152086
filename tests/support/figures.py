# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the size of the code base: code, imports, files that a module ships, calls of four operations.

Usage: python tests/support/figures.py [--tree DIR] [--json FILE] [--against FILE ...] [--files-only]

Prints a Markdown table. Lines of code exclude blank lines, comments, docstrings and imports; `__all__` and
`if TYPE_CHECKING:` count as imports. An operation is a test that runs under a profiler. The profiler counts the
functions of plugins/module_utils that the test calls; it ignores fixtures, comprehensions and lambdas.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import pytest
from ansible_collections.attested.kubernetes.tests.support import house

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from types import FrameType

Node = TypeVar("Node")
Graph: TypeAlias = "Mapping[Node, set[Node]]"
Figures: TypeAlias = dict[str, int | float | str]

ROOT = Path(__file__).resolve().parents[2]
LAB = Path.home() / ".local" / "state" / "attested-lab"
SMALL = 60  # a file with fewer lines of code is small
LONG_RUNNING_SECONDS = 60  # a younger program may be about to end
COUNTS = ("functions", "files", "packages", "deepest stack")


class Operation(NamedTuple):
    """An operation: its file of tests as a pattern below tests/, and the tests as an expression of pytest -k."""

    title: str
    file: str
    tests: str


OPERATIONS = (
    Operation("ticket, node to key service and back", "component/**/test_one_ticket.py", "a_node_gets_its_ticket"),
    Operation("init, module to keys on the machine", "component/**/action/test_init.py", "a_cluster_is_made"),
    Operation("state disk opened", "unit/**/test_state_disk.py", "open"),
    Operation("node verified", "component/**/verification/test_service.py", "a_good_node_is_verified"),
)


# ---- graphs


def floors(graph: Graph[Node]) -> int:
    """Return the number of nodes of the longest chain; a cycle counts once."""
    cycle = house.cycle_of(graph)

    @cache
    def height(nodes: frozenset[Node]) -> int:
        below = {cycle[target] for node in nodes for target in graph[node]} - {nodes}
        return 1 + max((height(other) for other in below), default=0)

    return max((height(nodes) for nodes in cycle.values()), default=0)


# ---- files


def of_module_utils() -> Figures:
    """Return the figures of plugins/module_utils: lines, packages, imports, functions, names."""
    files = [path for path in house.plugin_files() if house.UTILS in path.parents]
    graph = {path: imported(path) for path in files}
    imports = {path: import_lines(house.tree_of(path)) for path in files}
    code = {path: house.code_lines(path) - imports[path] for path in files}
    importers = Counter(target for path in house.plugin_files() for target in imported(path))
    importers.update(target for path in house.plugin_files() for target, _function in house.installed_by(path))
    names = Counter(path.name for path in files if path.name != "__init__.py")
    sizes = sorted(size for path in files for size in function_lines(house.tree_of(path)))
    share = sum(imports.values()) / (sum(code.values()) + sum(imports.values()))
    return {
        "module_utils: files": len(files),
        "raw lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files),
        "lines of code": sum(code.values()),
        "import lines, % of code and imports (aim: 10)": round(100 * share, 1),
        "packages": len({path.relative_to(house.UTILS).parts[0] for path in files if path.parent != house.UTILS}),
        "floors: longest import chain of packages": floors(house.between_packages(files)),
        "import cycles among files": len({cycle for cycle in house.cycle_of(graph).values() if len(cycle) > 1}),
        "functions": len(sizes),
        "lines of a function, median": statistics.median_low(sizes),
        "lines of a function, p95": sizes[int(len(sizes) * 0.95)],
        "lines of a function, max": sizes[-1],
        f"files below {SMALL} lines of code with at most one importer": sum(
            code[path] < SMALL and importers[path] <= 1 for path in files if path.name != "__init__.py"
        ),
        "file names used more than once": sum(count > 1 for count in names.values()),
    }


def imported(path: Path) -> set[Path]:
    """Return the files of module_utils that ``path`` imports, for types as well."""
    return {target for target in house.targets_of(path, typing=True) if house.UTILS in target.parents}


def import_lines(tree: ast.Module) -> int:
    """Return the number of lines that import or export names."""
    found = 0
    for node in ast.walk(tree):
        is_export = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        if is_export or isinstance(node, ast.Import | ast.ImportFrom):
            found += _lines(node)
        found += isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return found


def function_lines(tree: ast.Module) -> list[int]:
    """Return the number of lines of each function without its docstring."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [_lines(one) - (_lines(one.body[0]) if ast.get_docstring(one) else 0) for one in functions]


def _lines(node: Any) -> int:
    return int(node.end_lineno - node.lineno + 1)


def of_the_collection(tree: Path) -> Figures:
    """Return the figures of the collection: its parts by kind, and the payload of its modules."""
    modules = sorted((tree / "plugins" / "modules").glob("*.py"))
    shipped = {path.stem: sum(house.UTILS in one.parents for one in house.reachable(path)) for path in modules}
    largest = sorted(shipped, key=lambda name: (-shipped[name], name))[:5]
    return {
        "collection: modules": len(shipped),
        "roles": len(list((tree / "roles").glob("*/tasks"))),
        "action plugins": len(list((tree / "plugins" / "action").glob("*.py"))),
        "playbooks": len(list((tree / "playbooks").glob("*.yml"))),
        "console programs": len(programs(tree)),
        "reason codes": reason_codes(house.tree_of(house.UTILS / "reasons.py")),
        "files a module ships, median": statistics.median_low(shipped.values()),
        "files a module ships, max": max(shipped.values()),
        "modules that ship most": ", ".join(f"{name} {shipped[name]}" for name in largest),
    }


def programs(tree: Path) -> tuple[str, ...]:
    """Return the console programs of the wheel."""
    return tuple(tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"])


def reason_codes(tree: ast.Module) -> int:
    """Return how many members the enum `Reason` has."""
    (members,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Reason"]
    return sum(isinstance(node, ast.Assign) for node in members)


# ---- operations


@dataclass
class Profiler:
    """A profiler that is a pytest plugin: it records the functions below ``place`` that a test calls."""

    place: Path
    is_on: bool = False
    functions: set[tuple[str, str, int]] = field(default_factory=set)
    deepest: int = 0
    ended: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        """Record a call, as ``sys.setprofile`` and ``threading.setprofile`` expect it."""
        if self.is_on and event == "call" and (name := self._file_of(frame)):
            self.functions.add((name, frame.f_code.co_qualname, frame.f_code.co_firstlineno))
            depth, above = 1, frame.f_back
            while above is not None:
                depth, above = depth + bool(self._file_of(above)), above.f_back
            self.deepest = max(self.deepest, depth)

    def counts(self) -> dict[str, int]:
        """Return `COUNTS`."""
        files = {name for name, *_rest in self.functions}
        packages = {name.partition("/")[0] for name in files if "/" in name}
        return dict(zip(COUNTS, (len(self.functions), len(files), len(packages), self.deepest), strict=True))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        """Record while the test runs, but not during the setup and teardown of its fixtures."""
        self.is_on = True
        try:
            return (yield)
        finally:
            self.is_on = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of a test and its reason."""
        if report.when == "call" or report.outcome != "passed":
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else f"{report.outcome}: {report.nodeid}"
            self.ended.append((report.outcome, why))

    def _file_of(self, frame: FrameType) -> str:
        """Return the file of a function below ``place``, or an empty string for any other frame."""
        return "" if frame.f_code.co_name.startswith("<") else _below(self.place, frame.f_code.co_filename)


@cache
def _below(place: Path, name: str) -> str:
    path = Path(name).resolve()
    return path.relative_to(place).as_posix() if place in path.parents else ""


def of_an_operation(operation: Operation, tree: Path) -> Figures:
    """Return the counts of an operation, or why it was not measured; its tests import the collection from ``tree``."""
    found = sorted((tree / "tests").glob(operation.file))
    if len(found) != 1:
        return {f"{operation.title}: {COUNTS[0]}": f"not measured: {len(found)} files tests/{operation.file}"}
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
        namespace, report = Path(scratch) / "ansible_collections" / "attested", Path(scratch) / "report.json"
        namespace.mkdir(parents=True)
        (namespace / "kubernetes").symlink_to(tree)
        argv = [sys.executable, "-P", __file__, "--tree", str(tree), "--profile", str(report), "--"]
        env = {**os.environ, "PYTHONPATH": scratch}
        subprocess.run([*argv, str(found[0]), "-k", operation.tests], cwd=tree, env=env, check=False, stdout=sys.stderr)
        said = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"ended": []}
    bad = [why for outcome, why in said["ended"] if outcome != "passed"]
    if bad or not said["ended"]:
        return {f"{operation.title}: {COUNTS[0]}": f"not measured: {bad[0] if bad else 'no test ran'}"}
    return {f"{operation.title}: {name}": said["counts"][name] for name in COUNTS}


def profile(words: Sequence[str], tree: Path, report: Path) -> None:
    """Run pytest in this process, and write the counts and the outcomes to ``report``."""
    profiler = Profiler(tree / "plugins" / "module_utils")
    threading.setprofile(profiler)
    sys.setprofile(profiler)
    pytest.main(["-q", "-p", "no:cacheprovider", *words], plugins=[profiler])
    report.write_text(json.dumps({"counts": profiler.counts(), "ended": profiler.ended}), encoding="utf-8")


# ---- memory


def of_memory(lab: Path, names: Sequence[str]) -> Figures:
    """Return the memory (PSS) of the long-running programs on each machine of a lab."""
    argv, title = [str(lab / "podman"), "ps", "--format", "{{.Names}} {{.Pid}}"], "memory of long-running programs, MB"
    listed = subprocess.run(argv, capture_output=True, text=True, check=False).stdout if lab.exists() else ""
    found: Figures = {}
    for machine, first in sorted(line.split() for line in listed.splitlines()):
        held = [size for process in Path("/proc").glob("[0-9]*") if (size := _memory(process, first, names))]
        found[f"{title}: {machine}"] = f"{sum(held):.0f} ({len(held)} programs)"
    return found or {title: "not measured: no lab runs"}


def _memory(process: Path, first: str, names: Sequence[str]) -> float:
    """Return the memory of a long-running program in the PID namespace of the process ``first``; 0 for any other."""
    try:
        words = (process / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")[:2]
        started = int((process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
        is_inside = (process / "ns/pid").readlink() == Path(f"/proc/{first}/ns/pid").readlink()
        if not is_inside or age < LONG_RUNNING_SECONDS or all(word.rpartition("/")[2] not in names for word in words):
            return 0
        return int((process / "smaps_rollup").read_text(encoding="ascii").partition("\nPss:")[2].split()[0]) / 1024
    except OSError:  # the process has ended
        return 0


# ---- the table


def table(columns: Sequence[tuple[str, Figures]]) -> str:
    """Return a Markdown table of the columns, in the order of the last one."""
    titles = dict.fromkeys(title for _heading, figures in reversed(columns) for title in figures)
    rows = [["figure", *(heading for heading, _figures in columns)], ["---"] * (len(columns) + 1)]
    for title in titles:
        cells = [figures.get(title, "-") for _heading, figures in columns]
        rows.append([title, *(cell if isinstance(cell, str) else f"{cell:,}" for cell in cells)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def measured(tree: Path, *, files_only: bool) -> dict[str, Any]:
    """Return the record of a tree; the memory is only measured for this tree, because a lab runs no other."""
    house.ROOT, house.UTILS = tree, tree / "plugins" / "module_utils"
    figures = {**of_module_utils(), **of_the_collection(tree)}
    for operation in () if files_only else OPERATIONS:
        figures |= of_an_operation(operation, tree)
    if tree == ROOT and not files_only:
        figures |= of_memory(LAB, programs(tree))
    argv = ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    commit = subprocess.run(argv, cwd=tree, capture_output=True, text=True, check=True).stdout.strip()
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"version": 1, "record": "house", "date": date, "commit": commit, "figures": figures}


def main() -> None:
    """Measure a tree, write the record and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout to measure (default: this one)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--against", type=Path, nargs="+", default=[], help="earlier figures to show in columns before")
    parser.add_argument("--files-only", action="store_true", help="run no tests and measure no memory")
    parser.add_argument("--profile", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.profile:
        profile(options.words, options.tree, options.profile)
        return
    record = measured(options.tree.resolve(), files_only=options.files_only)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    earlier = [json.loads(path.read_text(encoding="utf-8")) for path in options.against]
    print(table([(one["commit"], one["figures"]) for one in [*earlier, record]]))


if __name__ == "__main__":
    main()
