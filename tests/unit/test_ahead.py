# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases side by side: never two on one machine, each outcome at its own test, and none begun after the end."""

from __future__ import annotations

import threading

import pytest
from ansible_collections.attested.kubernetes.tests.support.ahead import Ahead


def test_as_many_at_once_as_there_are_machines_and_one_case_on_each() -> None:
    together = threading.Barrier(3, timeout=60)  # breaks unless three come at once
    busy: set[str] = set()

    def run(machine: str, _case: int) -> None:
        assert machine not in busy
        busy.add(machine)
        together.wait()
        busy.remove(machine)
        together.wait()

    with Ahead(run, cases=range(9), machines=("w-1", "w-2", "w-3")) as ahead:
        for case in range(9):
            ahead.wait_for(case)


def test_a_case_that_failed_fails_where_it_is_waited_for_and_its_machine_goes_on() -> None:
    def run(_machine: str, case: int) -> None:
        assert case != 1, "this one"

    with Ahead(run, cases=range(4), machines=("w-1",)) as ahead:
        ahead.wait_for(0)
        with pytest.raises(AssertionError, match="this one"):
            ahead.wait_for(1)
        ahead.wait_for(3)


def test_what_has_not_begun_at_the_end_never_does() -> None:
    begun: list[int] = []
    going, over = threading.Event(), threading.Event()

    def run(_machine: str, case: int) -> None:
        begun.append(case)
        going.set()
        over.wait(60)

    with Ahead(run, cases=range(3), machines=("w-1",)):
        going.wait(60)
        threading.Timer(0.1, over.set).start()
    assert begun == [0]
