# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes on beside the calls: it begins anew after trouble, and says each trouble once."""

from __future__ import annotations

import io
import json
import threading
from datetime import UTC, datetime

from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.app import Background
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

_WAIT_SECONDS = 30


class SleeplessClock:
    """Counts the seconds that somebody slept."""

    def __init__(self) -> None:
        self.slept = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 21, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


class Task:
    """Does what a table says, one entry a run, and then stays away."""

    def __init__(self, *outcomes: Reason | None) -> None:
        self.left = list(outcomes)
        self.ended = threading.Event()

    def run(self) -> None:
        if not self.left:
            self.ended.set()
            threading.Event().wait()  # as a watch that hears nothing more
        reason = self.left.pop(0)
        if reason is not None:
            raise ApiError("no", reason=reason)


def test_a_task_begins_anew_and_each_trouble_is_told_once() -> None:
    away, refused = Reason.API_UNAVAILABLE, Reason.API_FORBIDDEN
    task, clock, stream = Task(away, away, refused, None, refused), SleeplessClock(), io.StringIO()
    Background({"watch": task.run}, clock=clock, log=open_log(stream=stream)).start()
    assert task.ended.wait(_WAIT_SECONDS)
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["event"], one["what"], one["reason"]) for one in told] == [
        ("watch_interrupted", "watch", code) for code in ("API_UNAVAILABLE", "API_FORBIDDEN", "API_FORBIDDEN")
    ]
    assert clock.slept == 20


def test_one_task_does_not_wait_for_another() -> None:
    first, second = Task(None), Task(Reason.API_UNAVAILABLE, None)
    tasks = {"first": first.run, "second": second.run}
    Background(tasks, clock=SleeplessClock(), log=open_log(stream=io.StringIO())).start()
    assert first.ended.wait(_WAIT_SECONDS)
    assert second.ended.wait(_WAIT_SECONDS)
