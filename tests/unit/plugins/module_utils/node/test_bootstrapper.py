# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One start of the bootstrapper, with its listener and join services in memory: which contender wins, when it ends."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    AttestedError,
    Refusal,
    SystemFault,
    TransportError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import (
    LockReading,
    LockState,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Progress
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import INIT_PHASES, JOIN_PHASES
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_program import exit_code
from ansible_collections.attested.kubernetes.plugins.module_utils.node.bootstrapper import BootAction, Bootstrapper
from ansible_collections.attested.kubernetes.plugins.module_utils.node.claim import Claim, ClaimFile, Contender, Race
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.playbook import MemberServices, PlaybookSettings
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import Success
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import CLUSTER

REQUEST = Claim(Contender.INIT, hashlib.sha256(b"request").hexdigest())
NOBODY = TransportError("nobody there", reason=Reason.PEER_UNREACHABLE)
REFUSED = Refusal("expected our ticket", reason=Reason.TICKET_NOT_OURS)
DONE = Success(kubeconfig=b"kind: Config", cluster_id=CLUSTER)


class FakeFounder:
    """Takes the lock for its request like the real one; fails as often as it is told."""

    def __init__(self, race, stop_others):
        self.race, self.stop_others = race, stop_others
        self.failures = []

    def found(self, order, bundle, *, digest, judged, reporter):
        del order, bundle, digest, judged, reporter
        with self.race.turn(REQUEST) as turn:
            turn.take()
        self.stop_others()
        if self.failures:
            raise self.failures.pop(0)
        return DONE


class FakeListener:
    """A listener that a test can wait for, and call as an admin."""

    def __init__(self):
        self.open = asyncio.Event()
        self.times = 0
        self.founder = None

    @asynccontextmanager
    async def opened(self, founder):
        self.founder = founder
        self.times += 1
        self.open.set()
        try:
            yield
        finally:
            self.open.clear()

    async def init(self):
        """Found the cluster, from a thread as a job does."""
        await self.open.wait()
        return await asyncio.to_thread(self.founder.found, None, None, digest=REQUEST.request, judged={}, reporter=None)


class Told:
    """A log that is kept."""

    def __init__(self):
        self.events = []
        self.join_failed = threading.Event()

    def event(self, name, /, **fields):
        self.events.append((name, fields))
        if name == "join_failed":
            self.join_failed.set()

    def names(self):
        return [name for name, _fields in self.events]


class Bed:
    """A machine and its bootstrapper."""

    def __init__(self, parts, root):
        self.parts = parts
        self.claims = ClaimFile(root / "run/attested/claim.json")
        self.race = Race(parts.lock, cluster_id=CLUSTER, claims=self.claims)
        self.log = Told()
        self.listener = FakeListener()
        self.founder = None
        self.services = None

    def make(self, *, serve_init=True):
        def founder(stop_others):
            self.founder = FakeFounder(self.race, stop_others)
            return self.founder

        return Bootstrapper(
            self.parts,
            race=self.race,
            claims=self.claims,
            founder=founder,
            listener=self.listener,
            serve_init=serve_init,
            log=self.log,
            services=self.services,
            linger_seconds=0.0,
        )

    async def start(self, **options):
        """Look, and go."""
        bootstrapper = self.make(**options)
        await asyncio.wait_for(bootstrapper.run(bootstrapper.next_action()), timeout=60)


@pytest.fixture
def bed(parts, tmp_path):
    return Bed(parts, tmp_path)


class FakePlaybooks:
    """Runs nothing, remembers what; fails as often as it is told."""

    def __init__(self):
        self.ran = []
        self.failures = []

    def run(self, order, listener):
        listener.step("stage", "task")
        self.ran.append((order.playbook.name, dict(order.variables)))
        if self.failures:
            raise self.failures.pop(0)
        return {}


class Deaf:
    """Hears nothing."""

    def step(self, stage, task):
        """Hear of a task."""


@pytest.fixture
def member(member_parts, tmp_path):
    bed = Bed(member_parts, tmp_path)
    bed.playbooks = FakePlaybooks()
    bed.services = MemberServices(
        PlaybookSettings(playbook=Path("machine_member.yml"), inventory=Path("i"), node_name="cp-2"),
        machine=member_parts.machine,
        journal=member_parts.journal,
        playbooks=bed.playbooks,
        listener=Deaf(),
        marker=tmp_path / "services",
    )
    return bed


def lock_it(bed):
    bed.parts.lock.acquire(CLUSTER)


def initialised(machine, *, complete=True):
    done = tuple(phase.name for phase in INIT_PHASES)
    machine.journal.save(Progress(operation="init", config_sha256="0" * 64, done=done if complete else done[:2]))


async def test_a_worker_joins_and_no_listener_opens(bed):
    await bed.start(serve_init=False)
    assert bed.parts.journal.load().phase is NodePhase.JOINED
    assert (bed.listener.times, bed.parts.lock.taken) == (0, 1)
    assert bed.claims.load() == Claim(Contender.JOIN)


async def test_a_join_tells_each_of_its_steps_and_how_long_it_took(bed):
    await bed.start(serve_init=False)
    told = [fields for name, fields in bed.log.events if name == "step"]
    assert [one["name"] for one in told] == [
        "ticket", "lock", "write", *(phase.name for phase in JOIN_PHASES), "confirm",
    ]  # fmt: skip
    assert all(one["seconds"] >= 0 for one in told)
    assert bed.log.names()[-1] == "joined"


async def test_join_wins_and_the_listener_closes(bed):
    await bed.start()
    assert bed.parts.journal.load().phase is NodePhase.JOINED
    assert (bed.listener.times, bed.listener.open.is_set()) == (1, False)
    with pytest.raises(AttestedError) as late:
        await asyncio.to_thread(bed.founder.found, None, None, digest="", judged={}, reporter=None)
    assert late.value.reason is Reason.RACE_LOST


async def test_init_wins_while_the_join_client_waits(bed):
    bed.parts.tickets.errors = [NOBODY] * 100
    going = asyncio.create_task(bed.start())
    assert await bed.listener.init() == DONE
    await going
    assert bed.claims.load() == REQUEST
    assert bed.parts.journal.load().phase is NodePhase.FRESH
    assert "joined" not in bed.log.names()
    assert bed.log.names()[-1] == "initialised"


async def test_a_join_that_is_refused_for_good_leaves_the_listener_open(bed):
    bed.parts.tickets.errors = [REFUSED] * 100
    going = asyncio.create_task(bed.start())
    assert await asyncio.to_thread(bed.log.join_failed.wait, 30)
    assert bed.listener.open.is_set()
    await bed.listener.init()
    await going
    assert bed.claims.load() == REQUEST


async def test_an_init_that_fails_after_the_lock_is_repeated_through_the_same_listener(bed):
    bed.parts.tickets.errors = [NOBODY] * 100
    going = asyncio.create_task(bed.start())
    await bed.listener.open.wait()
    bed.founder.failures = [SystemFault("kubeadm", reason=Reason.PLAYBOOK_FAILED)]
    with pytest.raises(SystemFault):
        await bed.listener.init()
    assert not going.done()
    assert await bed.listener.init() == DONE
    await going
    assert bed.parts.lock.taken == 1


@pytest.mark.parametrize("killed", ["claimed", "kubeadm begun"])
async def test_after_a_kill_the_init_goes_on_and_nobody_joins(bed, machine, killed):
    lock_it(bed)
    if killed == "claimed":
        bed.claims.write(REQUEST)
    else:
        initialised(machine, complete=False)
        bed.claims.write(REQUEST)
    going = asyncio.create_task(bed.start())
    await bed.listener.init()
    await going
    assert (bed.parts.tickets.asked, bed.parts.lock.taken) == ([], 1)


async def test_after_a_kill_the_join_goes_on_without_a_listener(bed):
    lock_it(bed)
    bed.claims.write(Claim(Contender.JOIN))
    await bed.start()
    assert bed.parts.journal.load().phase is NodePhase.JOINED
    assert (bed.listener.times, bed.parts.lock.taken) == (0, 1)


async def test_a_member_that_is_locked_only_gets_its_kubelet(bed, programs):
    await bed.start()
    programs.active = False
    bed.parts.tickets.asked.clear()
    await bed.start()
    assert (programs.active, bed.parts.tickets.asked, bed.listener.times) == (True, [], 1)


async def test_a_member_that_was_killed_after_its_lock_keeps_no_key_of_that_ticket(bed):
    """The ticket that it had asked for with that key is gone, and the kubelet has its own."""
    await bed.start()
    discarded = bed.parts.tickets.discarded
    await bed.start()
    assert bed.parts.tickets.discarded == discarded + 1


async def test_a_founder_whose_boot_is_locked_only_gets_its_kubelet(bed, machine, programs):
    lock_it(bed)
    initialised(machine)
    await bed.start()
    assert (programs.active, bed.listener.times, bed.parts.tickets.asked) == (True, 0, [])


async def test_a_founder_that_lost_its_keys_waits_for_its_admin_and_joins_nothing(bed, machine):
    initialised(machine)
    going = asyncio.create_task(bed.start(serve_init=False))
    await bed.listener.init()
    await going
    assert bed.parts.tickets.asked == []


async def test_a_member_after_a_reset_asks_again_and_is_not_initialised(bed, parts):
    await bed.start()
    parts.lock.reading = LockReading(state=LockState.UNLOCKED)
    parts.marker.unlink()
    await bed.start()
    assert (parts.lock.taken, len(parts.tickets.asked), bed.listener.times) == (2, 2, 1)


SERVES = ("machine_member.yml", {"attested_node_name": "cp-2"})


async def test_a_control_plane_joins_keeps_its_keys_in_its_turn_and_serves(member):
    await member.start()
    assert member.parts.journal.load().phase is NodePhase.JOINED
    assert (member.parts.keys.locked, member.parts.lock.taken) == ([False], 1)
    assert member.playbooks.ran == [SERVES]
    assert (member.listener.times, member.log.names()[-1]) == (1, "serves")


async def test_a_control_plane_that_serves_only_gets_its_kubelet(member, programs):
    await member.start()
    programs.active = False
    await member.start()
    assert (programs.active, len(member.playbooks.ran)) == (True, 1)


async def test_services_that_failed_are_made_complete_by_the_next_start(member):
    member.playbooks.failures = [SystemFault("no API", reason=Reason.PLAYBOOK_FAILED)]
    with pytest.raises(SystemFault) as failed:
        await member.start()
    assert exit_code(failed.value) == 1
    await member.start()
    assert member.playbooks.ran == [SERVES, SERVES]
    assert (len(member.parts.tickets.asked), member.parts.lock.taken) == (1, 1)


async def test_a_control_plane_that_loses_to_an_init_has_kept_nothing(member):
    member.parts.tickets.errors = [NOBODY] * 100
    going = asyncio.create_task(member.start())
    assert await member.listener.init() == DONE
    await going
    assert (member.parts.keys.kept, member.playbooks.ran) == ([], [])


async def test_keys_that_cannot_be_kept_leave_the_race_open(member):
    member.parts.keys.failures = [SystemFault("disk full", reason=Reason.FILE_UNUSABLE)]
    going = asyncio.create_task(member.start())
    assert await asyncio.to_thread(member.log.join_failed.wait, 30)
    assert (member.parts.lock.taken, member.claims.load()) == (0, None)
    assert await member.listener.init() == DONE
    await going


async def test_a_lock_that_nobody_explains_is_refused(bed):
    lock_it(bed)
    with pytest.raises(AttestedError) as refused:
        await bed.start()
    assert refused.value.reason is Reason.NODELOCK_UNCLAIMED
    assert exit_code(refused.value) == 78


async def test_stopped_the_join_client_ends_at_once(bed):
    bed.parts.tickets.errors = [NOBODY] * 100
    bootstrapper = bed.make()
    going = asyncio.create_task(bootstrapper.run(BootAction.RACE))
    await bed.listener.open.wait()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert not bed.listener.open.is_set()
    assert bed.parts.lock.taken == 0


async def test_told_to_ask_now_it_asks_before_its_pause_ends(bed, parts, monkeypatch):
    parts.tickets.errors = [NOBODY]
    monkeypatch.setattr(parts.tickets, "pause", lambda _error: 3600.0)
    bootstrapper = bed.make(serve_init=False)
    going = asyncio.create_task(bootstrapper.run(bootstrapper.next_action()))
    await asyncio.to_thread(wait_for, lambda: len(parts.tickets.asked) == 1)
    while not going.done():  # the pause may not have begun yet
        bootstrapper.ask_now()
        await asyncio.sleep(0.01)
    await going
    assert len(parts.tickets.asked) == 2


async def test_stopped_while_it_rejoins_it_keeps_what_the_disk_knows(bed, parts):
    await bed.start()
    parts.lock.reading = LockReading(state=LockState.UNLOCKED)
    parts.marker.unlink()
    before = parts.journal.snapshot()
    parts.tickets.errors = [NOBODY] * 100
    bootstrapper = bed.make()
    going = asyncio.create_task(bootstrapper.run(bootstrapper.next_action()))
    await asyncio.to_thread(wait_for, lambda: len(parts.tickets.asked) >= 2)
    bootstrapper.stop_asking()
    with pytest.raises(AttestedError):
        await going
    assert (parts.journal.snapshot(), parts.lock.taken) == (before, 1)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.PEER_UNREACHABLE, 1),
        (Reason.TPM_BUSY, 1),
        (Reason.TICKET_REFUSED, 1),
        (Reason.NODELOCK_FOREIGN, 78),
        (Reason.NODE_CONFIG_MALFORMED, 78),
    ],
)
def test_another_start_is_worth_it_unless_a_person_is_needed(reason, code):
    assert exit_code(SystemFault("x", reason=reason)) == code
