# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real ansible-runner on tiny playbooks: progress while it runs, the result, every way to fail."""

from __future__ import annotations

import asyncio
import gc
import json
import pty
import threading
import weakref
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.node.playbook import PlaybookOrder, RunnerPlaybooks
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Ear:
    """Hears steps and lines; tells who waits for a step."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.heard = threading.Event()

    def step(self, stage: str, task: str) -> None:
        self.steps.append((stage, task))
        self.lines.clear()
        self.heard.set()

    def line(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def ear() -> Iterator[Ear]:
    """Print what the run said, for whoever reads why a test failed."""
    made = Ear()
    yield made
    print("\n".join(made.lines))


@pytest.fixture
def order(tmp_path: Path) -> Callable[..., PlaybookOrder]:
    """Return an order for a play of these tasks on this machine."""

    def make(*tasks: dict[str, Any], hosts: str = "nodes", **variables: Any) -> PlaybookOrder:
        inventory = tmp_path / "hosts.yml"
        local = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
        inventory.write_text(yaml.safe_dump({"nodes": {"hosts": {"localhost": local}}}))
        playbook = tmp_path / "play.yml"
        play = {"name": "Make the cluster", "hosts": hosts, "gather_facts": False, "tasks": list(tasks)}
        playbook.write_text(yaml.safe_dump([play]))
        return PlaybookOrder(playbook=playbook, inventory=inventory, variables=variables)

    return make


@pytest.fixture
def playbooks(tmp_path: Path) -> RunnerPlaybooks:
    return RunnerPlaybooks(tmp_path / "run", require_memory=lambda _path: None)


def debug(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.debug": {"msg": text}, **more}


def fail(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.fail": {"msg": text}, **more}


class Exchange:
    """A call that has ended, with its channel; it refers to itself, so only the garbage collection removes it."""

    def __init__(self) -> None:
        self.channel = grpc.aio.insecure_channel("unix:/nothing.sock")
        self.itself = self


async def exchanged() -> weakref.ref[Exchange]:
    return weakref.ref(Exchange())


def test_no_channel_is_left_for_the_child_to_collect(
    playbooks: RunnerPlaybooks, order: Callable[..., PlaybookOrder], ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC ends its thread with the last channel; in the runner's child, which has no such thread, that never ends."""
    left, fork = [], pty.fork

    def seen() -> tuple[int, int]:
        left.append(exchange())
        return fork()

    monkeypatch.setattr(pty, "fork", seen)
    gc.disable()
    try:
        exchange = asyncio.run(exchanged())
        assert exchange() is not None
        playbooks.run(order(debug("Work", "done")), ear)
    finally:
        gc.enable()
    assert left == [None]


def failure(playbooks: RunnerPlaybooks, order: PlaybookOrder, ear: Ear) -> AttestedError:
    with pytest.raises(AttestedError) as caught:
        playbooks.run(order, ear)
    return caught.value


def test_tasks_are_told_and_the_result_comes_back(
    playbooks: RunnerPlaybooks, order: Callable[..., PlaybookOrder], ear: Ear, tmp_path: Path
) -> None:
    told = {"name": "Tell", "ansible.builtin.set_stats": {"data": {"kubeconfig": "{{ given }}"}}}
    assert playbooks.run(order(debug("First", "a"), told, given="kind: Config"), ear) == {"kubeconfig": "kind: Config"}
    assert ear.steps == [("Make the cluster", "First"), ("Make the cluster", "Tell")]
    assert list((tmp_path / "run").iterdir()) == []


def test_the_steps_of_a_module_are_told_with_their_seconds(
    order: Callable[..., PlaybookOrder], ear: Ear, tmp_path: Path
) -> None:
    """A result that has something else under that name, or that is hidden, tells of none."""
    ended: list[tuple[str, float]] = []
    playbooks = RunnerPlaybooks(
        tmp_path / "run", require_memory=lambda _path: None, ended=lambda name, seconds: ended.append((name, seconds))
    )
    steps = [{"name": "certs", "title": "Certificates", "seconds": 1.25}, {"name": "etcd", "seconds": 2}]
    (tmp_path / "library").mkdir()
    for name, told in (("stepping", steps), ("other", ["certs"]), ("odd", "many")):
        program = f"#!/usr/bin/python3\nprint({json.dumps(json.dumps({'changed': True, 'steps': told}))})\n"
        (tmp_path / "library" / f"{name}.py").write_text(program)
    tasks = ({"name": "A", "stepping": {}}, {"name": "B", "stepping": {}, "no_log": True}, {"name": "C", "other": {}})
    playbooks.run(order(*tasks, {"name": "D", "odd": {}}), ear)
    assert ended == [("certs", 1.25), ("etcd", 2.0)]


def test_the_validation_that_ansible_adds_to_a_role_is_not_told(
    playbooks: RunnerPlaybooks, order: Callable[..., PlaybookOrder], ear: Ear, tmp_path: Path
) -> None:
    role = tmp_path / "roles" / "example"
    for name, content in (
        ("meta/argument_specs.yml", {"argument_specs": {"main": {"short_description": "One", "options": {}}}}),
        ("tasks/main.yml", [debug("Inner", "a")]),
    ):
        (role / name).parent.mkdir(parents=True)
        (role / name).write_text(yaml.safe_dump(content))
    playbooks.run(order({"name": "Run the role", "ansible.builtin.import_role": {"name": "example"}}), ear)
    assert [task for _stage, task in ear.steps] == ["Inner"]


def test_a_task_is_told_while_it_runs(
    playbooks: RunnerPlaybooks, order: Callable[..., PlaybookOrder], ear: Ear, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = {"name": "Wait", "ansible.builtin.wait_for": {"path": str(gate), "timeout": 120, "sleep": 1}}
    opener = threading.Thread(target=lambda: ear.heard.wait(120) and gate.touch())
    opener.start()
    playbooks.run(order(wait), ear)
    opener.join()
    assert ear.steps == [("Make the cluster", "Wait")]


def test_a_failing_task_is_the_reason_with_its_lines(
    playbooks: RunnerPlaybooks, order: Callable[..., PlaybookOrder], ear: Ear
) -> None:
    error = failure(playbooks, order(debug("First", "a"), fail("Second", "disk full")), ear)
    assert (error.code, error.message) == ("PLAYBOOK_FAILED", "disk full")
    assert ear.steps[-1][1] == "Second"
    assert any("disk full" in line for line in ear.lines)


def test_a_failure_that_the_play_ignores_is_none(
    playbooks: RunnerPlaybooks, order: Callable[..., PlaybookOrder], ear: Ear
) -> None:
    assert playbooks.run(order(fail("First", "never mind", ignore_errors=True)), ear) == {}


@pytest.mark.parametrize("callback", ["default", "attested.kubernetes.stages"])
def test_a_play_for_nobody_is_an_error_whatever_shows_the_run(
    playbooks: RunnerPlaybooks,
    order: Callable[..., PlaybookOrder],
    ear: Ear,
    monkeypatch: pytest.MonkeyPatch,
    callback: str,
) -> None:
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", callback)
    assert failure(playbooks, order(debug("First", "a"), hosts="others"), ear).code == "PLAYBOOK_NO_HOST"


def test_a_playbook_that_is_none_fails_with_what_ansible_says(
    playbooks: RunnerPlaybooks, order: Callable[..., PlaybookOrder], ear: Ear
) -> None:
    one = order()
    one.playbook.write_text("- hosts: [")
    error = failure(playbooks, one, ear)
    assert error.code == "PLAYBOOK_FAILED"
    assert "exit code 4" in error.message
    assert ear.lines


def test_a_run_that_a_signal_ends_says_so(
    playbooks: RunnerPlaybooks, order: Callable[..., PlaybookOrder], ear: Ear
) -> None:
    error = failure(playbooks, order(hosts="{{ lookup('ansible.builtin.pipe', 'kill -SEGV $PPID') }}"), ear)
    assert (error.code, "stopped by a signal" in error.message) == ("PLAYBOOK_FAILED", True)


def test_a_canceled_run_ends(order: Callable[..., PlaybookOrder], ear: Ear, tmp_path: Path) -> None:
    playbooks = RunnerPlaybooks(tmp_path / "run", require_memory=lambda _path: None, canceled=ear.heard.is_set)
    wait = {"name": "Wait, and succeed if nobody cancels it", "ansible.builtin.command": "sleep 300"}
    assert failure(playbooks, order(wait), ear).code == "PLAYBOOK_FAILED"


def test_a_directory_on_a_disk_is_refused_before_anything_runs(
    order: Callable[..., PlaybookOrder], ear: Ear, tmp_path: Path
) -> None:
    def on_disk(_path: Path) -> None:
        raise SystemFault("on a disk", reason=Reason.NOT_TMPFS)

    playbooks = RunnerPlaybooks(tmp_path / "run", require_memory=on_disk)
    assert failure(playbooks, order(debug("First", "a")), ear).code == "NOT_TMPFS"
    assert ear.steps == []
