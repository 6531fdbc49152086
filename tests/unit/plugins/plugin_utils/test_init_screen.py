# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an admin sees of an init: a line a task, a stage once, a reason to wait once."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import Progress
from ansible_collections.attested.kubernetes.plugins.plugin_utils.init_screen import InitScreen


def step(stage: str, task: str, seconds: float) -> Progress:
    return Progress(stage=stage, task=task, elapsed_seconds=seconds)


def broken(reason: Reason) -> TransportError:
    return TransportError("no answer", reason=reason, retryable=True)


def test_a_stage_is_named_when_it_begins() -> None:
    said: list[str] = []
    screen = InitScreen("cp-1", say=said.append)
    for one in (step("A", "one", 0.0), step("A", "two", 1.0), step("B", "three", 2.5)):
        screen.progress(one)
    assert [" ".join(row.split()) for row in said] == [
        "cp-1: A",
        "- one 0.0 s",
        "- two 1.0 s",
        "cp-1: B",
        "- three 2.5 s",
    ]


def test_a_task_with_the_name_of_its_include_is_printed_once() -> None:
    said: list[str] = []
    screen = InitScreen("cp-1", say=said.append)
    for one in (step("A", "one", 0.0), step("A", "one", 0.1), step("A", "two", 1.0), step("B", "two", 2.0)):
        screen.progress(one)
    assert [" ".join(row.split()) for row in said] == [
        "cp-1: A",
        "- one 0.0 s",
        "- two 1.0 s",
        "cp-1: B",
        "- two 2.0 s",
    ]


def test_a_reason_to_wait_is_said_once_until_something_new_happens() -> None:
    said: list[str] = []
    screen = InitScreen("cp-1", say=said.append)
    screen.waits(broken(Reason.PEER_UNREACHABLE), 1.0)
    screen.waits(broken(Reason.PEER_UNREACHABLE), 2.0)
    screen.waits(broken(Reason.INIT_BROKEN_OFF), 4.0)
    screen.progress(step("A", "one", 0.0))
    screen.waits(broken(Reason.INIT_BROKEN_OFF), 1.0)
    assert [row for row in said if "trying again" in row] == [
        "  cp-1: no answer (PEER_UNREACHABLE), trying again in 1.0 s",
        "  cp-1: no answer (INIT_BROKEN_OFF), trying again in 4.0 s",
        "  cp-1: no answer (INIT_BROKEN_OFF), trying again in 1.0 s",
    ]
