# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An init followed over connections that break: what is told, when it is asked again, when it is given up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_client import (
    History,
    Patience,
    Pursuit,
    TimedTask,
    pause_seconds,
    waits_for_init,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import Progress, Success
from ansible_collections.attested.kubernetes.tests.support.endpoint_bed import ControlPlane, Credentials
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

ONE = Progress(stage="Make the cluster", task="Lock", elapsed_seconds=0.5)
TWO = Progress(stage="Make the cluster", task="Set up the control plane", elapsed_seconds=2.0)
ANEW = Progress(stage="Make the cluster", task="Set up the control plane", elapsed_seconds=0.1)
DONE = Success(kubeconfig=b"kind: Config\n", cluster_id=b"c" * 32)


def broken(reason: Reason = Reason.INIT_BROKEN_OFF, *, later: float = 0.0, retryable: bool = True) -> TransportError:
    error = TransportError("expected the machine to go on", reason=reason, retryable=retryable)
    error.retry_after_seconds = later
    return error


@dataclass
class Machine:
    """Says one list a connection, the last one for ever; what is an error breaks the connection."""

    conversations: list[list[Any]]
    clock: FakeClock = field(default_factory=FakeClock)
    heard: list[Any] = field(default_factory=list)
    connections: int = 0

    async def ask(self) -> AsyncGenerator[Progress | Success, None]:
        said = self.conversations[min(self.connections, len(self.conversations) - 1)]
        self.connections += 1
        for one in said:
            if isinstance(one, AttestedError):
                raise one
            yield one

    def progress(self, one: Progress) -> None:
        self.heard.append(one)

    def waits(self, error: TransportError, pause: float) -> None:
        self.heard.append((error.code, pause))

    async def sleep(self, seconds: float) -> None:
        self.clock.elapsed += seconds

    def pursuit(self, **patience: float) -> Pursuit:
        return Pursuit(
            Patience(**{"silent_seconds": 30.0, **patience}), clock=self.clock, listener=self, sleep=self.sleep
        )


async def test_a_connection_that_holds_tells_each_thing_and_ends() -> None:
    machine = Machine([[ONE, TWO, DONE]])
    ended = await machine.pursuit().follow(machine.ask)
    assert (ended.success, machine.heard) == (DONE, [ONE, TWO])
    assert ended.tasks[0] == TimedTask(stage="Make the cluster", task="Lock", seconds=1.5)


async def test_after_a_break_it_goes_on_where_it_was_and_repeats_nothing() -> None:
    machine = Machine([[ONE, broken()], [ONE, TWO, DONE]])
    ended = await machine.pursuit().follow(machine.ask)
    assert machine.heard == [ONE, ("INIT_BROKEN_OFF", 1.0), TWO]
    assert [one.task for one in ended.tasks] == ["Lock", "Set up the control plane"]


async def test_a_job_that_was_begun_anew_is_told_anew() -> None:
    machine = Machine([[ONE, TWO, broken()], [ANEW, DONE]])
    ended = await machine.pursuit().follow(machine.ask)
    assert machine.heard == [ONE, TWO, ("INIT_BROKEN_OFF", 1.0), ANEW]
    assert [one.task for one in ended.tasks] == ["Set up the control plane"]


async def test_a_stream_that_just_ends_is_asked_again() -> None:
    machine = Machine([[ONE], [ONE, DONE]])
    await machine.pursuit().follow(machine.ask)
    assert machine.heard == [ONE, ("INIT_BROKEN_OFF", 1.0)]


async def test_the_machine_says_when_to_come_again() -> None:
    machine = Machine([[broken(later=12.5)], [DONE]])
    await machine.pursuit().follow(machine.ask)
    assert machine.heard == [("INIT_BROKEN_OFF", 12.5)]


async def error_of(machine: Machine, **patience: float) -> AttestedError:
    with pytest.raises(AttestedError) as caught:
        await machine.pursuit(**patience).follow(machine.ask)
    return caught.value


async def test_where_nobody_listens_it_is_given_up_with_what_to_look_at() -> None:
    machine = Machine([[broken(Reason.PEER_UNREACHABLE)]])
    error = await error_of(machine)
    assert error.code == "PEER_UNREACHABLE"
    assert "systemctl status attested-bootstrapper" in error.hint
    assert "init -e over_ssh=true" in error.hint
    assert "attested_bootstrapper: false" in error.hint
    assert [pause for _code, pause in machine.heard] == [1.0, 2.0, 4.0, 8.0, 15.0]


async def test_without_patience_it_is_asked_once() -> None:
    machine = Machine([[broken(Reason.PEER_UNREACHABLE)]])
    await error_of(machine, silent_seconds=0.0)
    assert machine.connections == 1


async def test_patience_counts_from_the_last_new_thing() -> None:
    slow = [
        [ONE, broken()],
        *[[ONE, broken()]] * 4,
        [ONE, TWO, broken()],
        *[[ONE, TWO, broken()]] * 4,
        [ONE, TWO, DONE],
    ]
    machine = Machine(slow)
    await machine.pursuit().follow(machine.ask)
    assert machine.clock.elapsed > 30


async def test_what_was_heard_before_does_not_count_as_a_sign_of_life() -> None:
    error = await error_of(Machine([[ONE, broken()]]))
    assert error.code == "INIT_BROKEN_OFF"


async def test_a_machine_that_begins_for_ever_is_given_up_in_the_end() -> None:
    class Restless(Machine):
        async def ask(self) -> AsyncGenerator[Progress | Success, None]:
            self.connections += 1
            yield Progress(stage="Make the cluster", task="Lock", elapsed_seconds=float(self.connections))
            raise broken()

    machine = Restless([])
    await error_of(machine, total_seconds=100.0)
    assert machine.clock.elapsed <= 100


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(broken(Reason.ADMIN_REQUEST_REFUSED, retryable=False), id="refused"),
        pytest.param(AttestedError("no", reason=Reason.PCR_MISMATCH), id="judged and found wanting"),
    ],
)
async def test_a_no_is_told_at_once(error: AttestedError) -> None:
    machine = Machine([[error]])
    assert await error_of(machine, silent_seconds=600.0) is error
    assert machine.connections == 1


def test_a_story_knows_no_negative_time() -> None:
    history = History()
    for one in (TWO, ONE):
        history.add(one)
    assert [one.seconds for one in history.tasks(last_seconds=3.0)] == [0.0, 3.0]


def test_pauses_grow_and_stop_growing() -> None:
    assert [pause_seconds(tries) for tries in (0, 1, 2, 3, 4, 5, 10_000)] == [1, 2, 4, 8, 15, 15, 15]


async def leave(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_a_machine_waits_for_init_where_its_service_answers_and_no_api_server_does(tmp_path: Path) -> None:
    """A load balancer without anybody behind it takes a connection, and ends it."""
    service = ControlPlane(leave, tls=Credentials(tmp_path).server)
    balancer, nothing = ControlPlane(leave), ControlPlane(leave)
    for one in (service, balancer, nothing):
        await one.start()
    await nothing.die()

    clock = FakeClock()

    async def waits(machine: str, server: str) -> tuple[bool, float]:
        """Return the answer, and the seconds that were waited for it."""
        before = clock.monotonic()
        said = await asyncio.to_thread(waits_for_init, machine, server, clock=clock, wait_seconds=5.0)
        return said, clock.monotonic() - before

    assert await waits(service.address, nothing.address) == (True, 0.0)
    assert await waits(service.address, balancer.address) == (True, 0.0)
    assert await waits(service.address, "api.prod.example") == (True, 0.0)
    assert await waits(service.address, service.address) == (False, 0.0)
    assert await waits(balancer.address, nothing.address) == (False, 5.0)
    assert await waits(nothing.address, nothing.address) == (False, 5.0)
    await service.die()
    await balancer.die()
