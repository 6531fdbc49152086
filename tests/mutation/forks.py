# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pytest plugin: once collected, the session forks for each mutant and runs the tests that enter its function."""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib
import json
import mmap
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.mutation.mutants import Mutant, mutants_of
from ansible_collections.attested.kubernetes.tests.mutation.targets import UTILS
from hypothesis import Phase, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PACKAGE = "ansible_collections.attested.kubernetes.plugins.module_utils"
_CPU_SECONDS = 20
_STUCK_SECONDS = 600  # of waiting for something that never comes
_WORKERS = os.cpu_count() or 1
_SURVIVED, _KILLED, _BROKEN = 0, 1, 3
_EXAMPLES = 20
_ENTERED = "__entered__"

_Functions = dict[tuple[str, int], list[FunctionType]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take what `run.py` hands over."""
    parser.addoption("--mutate")
    parser.addoption("--slice", type=int)
    parser.addoption("--seed")
    parser.addoption("--report")


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run everything once unchanged, then each mutant; write the report."""
    if session.testsfailed:
        raise session.Interrupted("the tests could not be collected")
    session.config.pluginmanager.unregister(name="terminalreporter")  # thousands of tests would talk at once
    settings.register_profile(
        "mutation",
        deadline=None,
        derandomize=True,
        database=None,
        max_examples=_EXAMPLES,
        phases=(Phase.explicit, Phase.generate),
    )
    settings.load_profile("mutation")
    path = UTILS / session.config.getoption("--mutate")
    mutants = list(mutants_of(path.read_text()))
    chosen = _sliced(mutants, session.config)
    module = importlib.import_module(f"{_PACKAGE}.{'.'.join(path.relative_to(UTILS).with_suffix('').parts)}")
    functions = _functions_of(module)
    tests = _Tests(session, _in_child(lambda: _learn(session, module, functions)))
    gc.collect()
    gc.freeze()  # a collection in a fork would touch, and so copy, all that was loaded before
    control = replace(next(one for one in mutants if one.function != "<module>"), tree=ast.parse(path.read_text()))
    unchanged, *results = _all_forked([partial(_try, one, module, functions, tests) for one in (control, *chosen)])
    if unchanged != "survived":
        pytest.exit(f"a mutant that changes nothing: {unchanged}", returncode=_BROKEN)
    report = [
        {"number": mutants.index(one), "mutant": str(one), "line": one.line, "result": result}
        for one, result in zip(chosen, results, strict=True)
    ]
    Path(session.config.getoption("--report")).write_text(json.dumps(report))
    return True


def _sliced(mutants: list[Mutant], config: pytest.Config) -> list[Mutant]:
    count, seed = config.getoption("--slice"), config.getoption("--seed")
    if not count:
        return mutants
    ranked = sorted(mutants, key=lambda one: hashlib.sha256(f"{seed}{one}{one.line}".encode()).digest())
    return ranked[:count]


class _Tests:
    """Which tests enter a function, all of them for a constant: what found most lies first, then the quickest."""

    def __init__(self, session: pytest.Session, entering: dict[str, Any]) -> None:
        self.session = session
        self._items = {item.nodeid: item for item in session.items}
        self._numbers = {name: number for number, name in enumerate(self._items)}
        self._found = mmap.mmap(-1, len(self._items))  # a byte a test, shared with the forks
        self._seconds: dict[str, float] = entering["seconds"]
        self._by_function: dict[str, list[str]] = entering["functions"]

    def of(self, function: str) -> list[pytest.Item]:
        names = self._seconds if function == "<module>" else self._by_function.get(function, [])
        return [self._items[name] for name in sorted(names, key=self._rank)]

    def note(self, item: pytest.Item) -> None:
        """Remember that ``item`` found a lie."""
        number = self._numbers[item.nodeid]
        self._found[number] = min(self._found[number] + 1, 255)

    def _rank(self, name: str) -> tuple[int, float]:
        return -self._found[self._numbers[name]], self._seconds[name]


def _learn(session: pytest.Session, module: Any, functions: _Functions) -> dict[str, Any]:
    """Return the time of each test, and which tests enter which function of ``module``."""
    entered: set[str] = set()
    module.__dict__[_ENTERED] = entered.add
    for code in _recording(Path(module.__file__).read_text(), module.__file__):
        for function in functions.get((code.co_qualname, code.co_firstlineno), []):
            function.__code__ = code
    seconds: dict[str, float] = {}
    entering: dict[str, list[str]] = defaultdict(list)
    for item, following in _pairs(session.items):
        entered.clear()
        began = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            os.write(2, f"failed unchanged: {item.nodeid}\n".encode())
            raise SystemExit(_BROKEN)
        seconds[item.nodeid] = time.process_time() - began
        for name in entered:
            entering[name].append(item.nodeid)
    return {"seconds": seconds, "functions": entering}


def _recording(source: str, path: str) -> Iterator[CodeType]:
    """Yield the code of each function and method with a first step that tells its name; tracing would take ages."""
    tree = ast.parse(source)
    names = []
    for outer in tree.body:
        for node in [outer, *(outer.body if isinstance(outer, ast.ClassDef) else [])]:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.append(node.name if node is outer else f"{getattr(outer, 'name', '')}.{node.name}")
                told = ast.parse(f"{_ENTERED}({names[-1]!r})").body[0]
                node.body.insert(0, ast.copy_location(told, node.body[0]))
    compiled = compile(ast.fix_missing_locations(tree), path, "exec")
    return (_code_of(compiled, name) for name in names)


def _try(mutant: Mutant, module: Any, functions: _Functions, tests: _Tests) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 5))
    signal.alarm(_STUCK_SECONDS)
    try:
        _put(mutant, module, functions)
    except (TypeError, ValueError):  # a tuple too short for its names, a text minus a text: nobody could import this
        return _KILLED
    items, session = tests.of(mutant.function), tests.session
    for item, following in _pairs(items):
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except Exception:  # noqa: BLE001 - a mutant may break pytest's own telling of the failure; also found, then
            return _KILLED
        if session.testsfailed:
            tests.note(item)
            session._setupstate.teardown_exact(None)
            return _KILLED
    return _SURVIVED


def _pairs(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=bool(items))


def _functions_of(module: Any) -> _Functions:
    """Return the loaded functions of a file by their name and line: looked up once, before the forks."""
    found: _Functions = defaultdict(list)
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename == module.__file__:
            found[one.__code__.co_qualname, one.__code__.co_firstlineno].append(one)
    return found


def _put(mutant: Mutant, module: Any, functions: _Functions) -> None:
    """Let the changed code take the place of what is loaded."""
    if mutant.function == "<module>":
        _put_constant(mutant, module)
        return
    code = _code_of(compile(mutant.tree, module.__file__, "exec"), mutant.function)
    loaded = functions.get((code.co_qualname, code.co_firstlineno), [])
    if not loaded:
        raise LookupError(mutant.function)
    for function in loaded:
        function.__code__ = code


def _code_of(code: CodeType, qualified_name: str) -> CodeType:
    for name in qualified_name.split("."):
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
    return code


def _put_constant(mutant: Mutant, module: Any) -> None:
    """Assign the changed constant in its module and wherever it was imported to."""
    statement = next(
        node
        for node in mutant.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= mutant.line <= (node.end_lineno or 0)
    )
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    names = [ast.unparse(one) for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
    old = {name: getattr(module, name) for name in names}
    exec(compile(ast.Module(body=[statement], type_ignores=[]), module.__file__, "exec"), module.__dict__)
    for other in list(sys.modules.values()):
        for name in names:
            if other is not module and getattr(other, "__dict__", {}).get(name) is old[name]:
                setattr(other, name, getattr(module, name))


def _in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what ``work`` gives in a fork, so that this process stays as it was."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = _BROKEN
        try:
            with os.fdopen(writing, "w") as stream:
                stream.write(json.dumps(work()))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as stream:
        data = stream.read()
    _child, status = os.waitpid(child, 0)
    if status:
        pytest.exit("the tests do not pass unchanged", returncode=_BROKEN)
    return dict(json.loads(data))


def _all_forked(works: Sequence[Callable[[], int]]) -> list[str]:
    results = [""] * len(works)
    running: dict[int, int] = {}
    for index, work in enumerate(works):
        if len(running) >= _WORKERS:
            _reap(running, results)
        child = os.fork()
        if child == 0:
            _quietly(work)
        running[child] = index
    while running:
        _reap(running, results)
    return results


def _quietly(work: Callable[[], int]) -> None:
    """Run ``work`` as this whole process, silently; an error outside a test is loud."""
    code = _BROKEN
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        code = work()
    finally:
        os._exit(code)


def _reap(running: dict[int, int], results: list[str]) -> None:
    child, status = os.wait()
    index = running.pop(child, None)
    if index is None:
        return
    if os.WIFSIGNALED(status):
        results[index] = "timeout"
        return
    results[index] = {_SURVIVED: "survived", _KILLED: "killed"}.get(os.WEXITSTATUS(status), "broken")
