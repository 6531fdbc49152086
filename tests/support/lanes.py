# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run stages of the tests in parallel: which stage may start next, and output with the name of the stage.

Stages mostly wait (for a TPM, a kubelet, an etcd), so two cores run three stages at once.
"""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

Result = TypeVar("Result")
_PRINTING = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The constraints of a stage: stages that must run before it, and stages that share a resource with it."""

    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    apart: Sequence[frozenset[str]] = ()

    def next_of(self, waiting: Sequence[str], running: Collection[str]) -> str | None:
        """Return the first of ``waiting`` that may start beside ``running``, or None.

        A required stage that neither waits nor runs was not requested or has ended, with any result: it does not block.
        """
        return next((name for name in waiting if self._may_begin(name, waiting=waiting, running=running)), None)

    def _may_begin(self, name: str, *, waiting: Sequence[str], running: Collection[str]) -> bool:
        if self.needs.get(name, frozenset()) & {*waiting, *running}:
            return False
        return not any(name in group and group & {*running} for group in self.apart)


def run_in_lanes(names: Sequence[str], run: Callable[[str], Result], *, lanes: int, order: Order) -> dict[str, Result]:
    """Run each of ``names``, at most ``lanes`` at once; return their results in the order of ``names``."""
    waiting, running, results = list(names), dict[Future[Result], str](), dict[str, Result]()
    with ThreadPoolExecutor(max_workers=lanes) as pool:
        while waiting or running:
            while len(running) < lanes and (name := order.next_of(waiting, running.values())):
                waiting.remove(name)
                running[pool.submit(run, name)] = name
            ended, _others = wait(running, return_when=FIRST_COMPLETED)
            results |= {running.pop(one): one.result() for one in ended}
    return {name: results[name] for name in names}


def run_named(name: str, argv: Sequence[str]) -> int:
    """Run a program, print its lines prefixed with ``name`` as they arrive, and return its exit code."""
    program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert program.stdout is not None
    with program:
        for line in program.stdout:
            say(f"{name:<14} | {line.decode(errors='replace').rstrip()}")
    return program.returncode


def say(line: str) -> None:
    """Print one whole line, also if other threads print."""
    with _PRINTING:
        print(line, flush=True)
