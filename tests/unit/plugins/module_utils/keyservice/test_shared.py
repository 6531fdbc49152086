# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared reads: nobody gets an answer that is older than the question."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.cached_policy import SharedReads
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Store:
    """Answers with the number of the read; the first read waits until it is let go."""

    def __init__(self) -> None:
        self.reads = 0
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def read(self) -> Mapping[str, Any]:
        self.reads += 1
        number = self.reads
        self.begun.set()
        if number == 1:
            assert self.go_on.wait(10)
        return {"number": number}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = threading.Event()
    for _unused in range(1000):
        if condition():
            return
        deadline.wait(0.01)
    raise AssertionError("it did not happen")


def test_who_asks_while_a_read_runs_waits_for_the_next_one_and_shares_it() -> None:
    store = Store()
    shared = SharedReads(store.read)
    with ThreadPoolExecutor(5) as workers:
        first = workers.submit(shared.read)
        assert store.begun.wait(10)
        later = [workers.submit(shared.read) for _unused in range(4)]
        wait_until(lambda: shared._waiting is not None)
        store.go_on.set()
        assert first.result(10) == {"number": 1}
        numbers = {one.result(10)["number"] for one in later}  # type: ignore[index]
    assert 1 not in numbers
    assert store.reads <= 1 + len(numbers)


def test_a_failed_read_fails_who_waited_for_it_and_nobody_later() -> None:
    answers: list[Any] = [ApiError("away", reason=Reason.API_UNAVAILABLE), {"fine": True}]

    def read() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    shared = SharedReads(read)
    with pytest.raises(ApiError, match="away"):
        shared.read()
    assert shared.read() == {"fine": True}


def test_a_reader_that_breaks_off_leaves_nobody_waiting() -> None:
    """Whatever ends it before its read: who asks later must not wait for it for ever."""
    shared = SharedReads(lambda: {"number": 1})
    lead, answers = shared._read_for_all, queue.SimpleQueue[object]()
    shared._read_for_all = lambda *_rest: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        shared.read()
    shared._read_for_all = lead  # type: ignore[method-assign]
    threading.Thread(target=lambda: answers.put(shared.read()), daemon=True).start()
    assert answers.get(timeout=60) == {"number": 1}


def test_who_waits_for_a_reader_that_breaks_off_is_told() -> None:
    store = Store()

    def read() -> Mapping[str, Any]:
        found = store.read()
        if found["number"] == 2:
            raise SystemExit
        return found

    shared = SharedReads(read)
    with ThreadPoolExecutor(3) as workers:
        first = workers.submit(shared.read)
        assert store.begun.wait(10)
        leader = workers.submit(shared.read)
        wait_until(lambda: shared._waiting is not None)
        future = shared._waiting
        store.go_on.set()
        assert first.result(10)
        with pytest.raises(SystemExit):
            leader.result(10)
    assert future is not None
    with pytest.raises(ApiError) as caught:
        future.result(10)
    assert caught.value.code == "API_UNAVAILABLE"
