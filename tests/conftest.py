# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of all tests: nothing fails because the machine is slow; what was counted is told at the end.

The examples of a property follow from its code, so that what failed fails again; `make nightly` draws others each time.
Tests run in the order in which they are written, unless ATTESTED_ORDER names another one.
"""

from __future__ import annotations

import functools
import os
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.log_schema import (
    require_none_wrong,
    watch_this_process,
)
from hypothesis import is_hypothesis_test, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Counted = Callable[[str], None]

COUNTED = "counted"
EXAMPLES = "examples"

RANDOM_EXAMPLES = "ATTESTED_RANDOM_EXAMPLES"
ORDER = "ATTESTED_ORDER"
"""Any word: the files, and the tests of each file, run in an order that follows from it."""

# before any test imports gRPC itself: `_deps/grpc.py` says why
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

settings.register_profile("house", deadline=None, derandomize=RANDOM_EXAMPLES not in os.environ)
settings.load_profile("house")

watch_this_process()

_examples = [0]


@pytest.fixture
def counted(record_property: Callable[[str, object], None]) -> Counted:
    """Tell a line at the end of the run, from whichever process: how much a test went through."""
    return lambda line: record_property(COUNTED, line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle files and their tests if the environment asks for it."""
    if seed := os.environ.get(ORDER):
        names = {one: (one.nodeid.partition("::")[0], one.nodeid) for one in items}
        items.sort(key=lambda one: [Random(f"{seed}{name}").random() for name in names[one]])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Check the lines that code of ours wrote in this process during the test and its fixtures."""
    yield
    require_none_wrong()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Count the examples of a property."""
    test = getattr(item, "obj", None)
    if not is_hypothesis_test(test):
        return (yield)
    handle: Any = test.hypothesis  # type: ignore[union-attr]
    if not hasattr(handle.inner_test, COUNTED):
        handle.inner_test = _counting(handle.inner_test)
    before = _examples[0]
    try:
        return (yield)
    finally:
        item.user_properties.append((EXAMPLES, _examples[0] - before))


def _counting(test: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(test)
    def one(*arguments: object, **named: object) -> None:
        _examples[0] += 1
        test(*arguments, **named)

    setattr(one, COUNTED, True)
    return one


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was counted, and how many properties held against how many examples."""
    reports = [one for ending in ("passed", "failed") for one in terminalreporter.stats.get(ending, [])]
    told = [(name, value) for one in reports if one.when == "call" for name, value in one.user_properties]
    for line in (value for name, value in told if name == COUNTED):
        terminalreporter.write_line(str(line))
    examples = [int(str(value)) for name, value in told if name == EXAMPLES]
    if examples:
        terminalreporter.write_line(f"properties: {len(examples)}, with {sum(examples)} examples")
