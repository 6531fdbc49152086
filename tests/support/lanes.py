# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stages of the tests side by side: which one may begin next, and programs whose lines bear their stage's name.

Much of a stage is waiting (for a TPM, a kubelet, an etcd), so two cores serve three stages at once.
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
    """What holds a stage back: those that it needs first, and those that it shares something with."""

    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    apart: Sequence[frozenset[str]] = ()

    def next_of(self, waiting: Sequence[str], running: Collection[str]) -> str | None:
        """Return the first of ``waiting`` that may begin beside ``running``, or None.

        A need that neither waits nor runs was not asked for or has ended, well or badly: it holds nobody back.
        """
        return next((name for name in waiting if self._may_begin(name, waiting=waiting, running=running)), None)

    def _may_begin(self, name: str, *, waiting: Sequence[str], running: Collection[str]) -> bool:
        if self.needs.get(name, frozenset()) & {*waiting, *running}:
            return False
        return not any(name in group and group & {*running} for group in self.apart)


def run_in_lanes(names: Sequence[str], run: Callable[[str], Result], *, lanes: int, order: Order) -> dict[str, Result]:
    """Run each of ``names``, at most ``lanes`` at once, and return their results in the order of ``names``."""
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
    """Run a program, print each of its lines behind ``name`` as it comes, and return its exit code."""
    program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert program.stdout is not None
    with program:
        for line in program.stdout:
            say(f"{name:<14} | {line.decode(errors='replace').rstrip()}")
    return program.returncode


def say(line: str) -> None:
    """Print one line whole, whoever else prints."""
    with _PRINTING:
        print(line, flush=True)
