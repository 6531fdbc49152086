# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rebooted worker between a ticket and an admin: when the listener starts, who opens the disk, and what follows."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pwd
import threading
import time
from contextlib import asynccontextmanager, contextmanager, nullcontext

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    AttestedError,
    DiskError,
    Refusal,
    SystemFault,
    TransportError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node import recovery
from ansible_collections.attested.kubernetes.plugins.module_utils.node.bootstrapper import Bootstrapper
from ansible_collections.attested.kubernetes.plugins.module_utils.node.claim import ClaimFile, Race
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import NodeRun
from ansible_collections.attested.kubernetes.plugins.module_utils.node.recovery import (
    RECOVERY_UNIT,
    ContestedDisk,
    RecoveredNode,
    Recovery,
    SocketRecoveryListener,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_socket import recovery_port
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_handler import (
    Contender,
    Contest,
    Unlocking,
)
from ansible_collections.attested.kubernetes.tests.unit.fakes.disk import UUID
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import CLUSTER
from ansible_collections.attested.kubernetes.tests.unit.fakes.state_disk import KEY, DiskBed

NOBODY = TransportError("nobody there", reason=Reason.PEER_UNREACHABLE)


class Told:
    """A log that is kept."""

    def __init__(self):
        self.names = []

    def event(self, name, /, **fields):
        del fields
        self.names.append(name)


class FakeListener:
    """A listener at which a test is the admin."""

    def __init__(self):
        self.open = asyncio.Event()
        self.times = 0
        self.fails = None

    @asynccontextmanager
    async def opened(self):
        if self.fails is not None:
            raise self.fails
        self.times += 1
        self.open.set()
        yield
        self.open.clear()


class HeldTrial:
    """A key that was tried and found right, in the file where the short-lived process leaves it."""

    def __init__(self, folder):
        self.path = folder / "run/key"

    @contextmanager
    def tried(self, offer):
        del offer
        self.path.write_bytes(KEY.reveal())
        self.path.chmod(0o600)
        yield self.path
        self.path.unlink()


class Bed:
    """A worker with a disk that has been a node, after a reboot."""

    def __init__(self, parts, ticket, root, api):
        self.disks = DiskBed(root)
        self.contest = Contest()
        self.listener = FakeListener()
        self.log = Told()
        self.services = None
        self.root = root
        parts.tickets.ticket = dataclasses.replace(ticket, disk_id=UUID, disk_key=KEY)
        self.parts = dataclasses.replace(parts, disk=ContestedDisk(self.disks.disk(), self.contest))
        first = NodeRun(dataclasses.replace(parts, disk=self.disks.disk()))
        first.apply(first.plan())
        self._reboot(api)
        self.unlocking = Unlocking(HeldTrial(root), self.opener(), self.contest)

    def _reboot(self, api):
        self.disks.device.reboot()
        self.parts.lock.reading = type(self.parts.lock)(self.parts.marker).reading
        self.parts.marker.unlink()
        self.parts.confirmed.unlink()
        self.parts.machine.runner.active = False
        self.parts.boot_id.write_text("boot-2\n")
        api.boot_id = "boot-2"

    def opener(self):
        return RecoveredNode(disk=self.disks.disk(), disk_id=UUID, lock=self.parts.lock, cluster_id=CLUSTER)

    async def start(self, *, after_seconds=0.05):
        other_way = Recovery(
            contest=self.contest,
            listener=self.listener,
            after_seconds=after_seconds,
            linger_seconds=0.0,
            yield_seconds=5.0,
        )
        claims = ClaimFile(self.root / "run/attested/claim.json")
        bootstrapper = Bootstrapper(
            self.parts,
            race=Race(self.parts.lock, cluster_id=CLUSTER, claims=claims),
            claims=claims,
            founder=lambda _stop: None,
            listener=None,
            serve_init=False,
            log=self.log,
            services=self.services,
            recovery=other_way,
        )
        await asyncio.wait_for(bootstrapper.run(bootstrapper.next_action()), timeout=60)

    def recover(self):
        """Offer the right key as an admin does, in a thread of its own."""
        return asyncio.to_thread(self.unlocking.offer, None, by=Contender.RECOVERY, record=lambda: None)

    def saw_it_yield(self):
        """Wait until the ticket came second, and say whether it did."""
        for _look in range(600):
            if self.parts.journal.load().reason == "RECOVERY_RACE_LOST":
                return True
            time.sleep(0.05)
        return False

    def require_node(self):
        assert self.parts.journal.load().phase is NodePhase.JOINED
        assert (self.parts.lock.taken, self.disks.device.mapped, self.disks.device.wipes) == (2, True, 1)
        assert self.parts.machine.runner.active
        assert not self.listener.open.is_set()


@pytest.fixture
def bed(parts, ticket, tmp_path, api):
    return Bed(parts, ticket, tmp_path, api)


async def test_a_cluster_that_answers_at_once_is_enough_and_no_listener_opens(bed):
    await bed.start(after_seconds=60)
    bed.require_node()
    assert (bed.listener.times, bed.contest.winner) == (0, Contender.REJOIN)


async def test_a_cluster_that_answers_late_still_wins_and_the_listener_closes(bed):
    bed.parts.tickets.errors = [NOBODY]
    await bed.start()
    bed.require_node()
    assert (bed.listener.times, bed.contest.winner) == (1, Contender.REJOIN)
    with pytest.raises(AttestedError) as late:
        await bed.recover()
    assert late.value.code == "RECOVERY_RACE_LOST"


async def test_an_admin_opens_the_disk_and_the_node_goes_on_without_a_ticket(bed):
    bed.parts.tickets.errors = [NOBODY] * 1000
    going = asyncio.create_task(bed.start())
    await asyncio.wait_for(bed.listener.open.wait(), 30)
    await bed.recover()
    await going
    bed.require_node()
    assert bed.contest.winner is Contender.RECOVERY
    told = [name for name in bed.log.names if name != "step"]
    assert told == ["course", "recovery", "recovered", "joined"]


class FakeServices:
    """Those of a control plane."""

    def __init__(self):
        self.resumed = 0

    def missing(self):
        return False

    def install(self):
        raise AssertionError("they are installed")

    def resume(self):
        self.resumed += 1


async def test_a_recovered_control_plane_needs_nobody_for_its_kubelet_and_its_services_follow(bed):
    """Its certificate has ended: who could give it another one needs this very kubelet."""
    bed.parts.machine.clock.sleep(400 * 24 * 3600)
    bed.services = FakeServices()
    bed.parts.tickets.errors = [NOBODY] * 1000
    going = asyncio.create_task(bed.start())
    await asyncio.wait_for(bed.listener.open.wait(), 30)
    await bed.recover()
    await going
    bed.require_node()
    assert (bed.services.resumed, bed.parts.journal.load().reason) == (1, None)


async def test_the_disk_is_opened_before_the_machine_is_locked(bed):
    seen = []
    acquire = bed.parts.lock.acquire

    def looking(cluster_id):
        seen.append(bed.disks.device.mapped)
        return acquire(cluster_id)

    bed.parts.lock.acquire = looking
    bed.parts.tickets.errors = [NOBODY] * 1000
    going = asyncio.create_task(bed.start())
    await asyncio.wait_for(bed.listener.open.wait(), 30)
    await bed.recover()
    await going
    assert seen == [True]


async def test_a_ticket_that_comes_while_an_admin_opens_the_disk_gives_way(bed):
    """Held exactly between the claim and the opening; the ticket comes then, and opens nothing."""
    claimed, let_go = threading.Event(), threading.Event()

    def record():
        claimed.set()
        assert let_go.wait(30)

    bed.parts.tickets.errors = [NOBODY]
    going = asyncio.create_task(bed.start())
    await asyncio.wait_for(bed.listener.open.wait(), 30)
    offer = asyncio.create_task(asyncio.to_thread(bed.unlocking.offer, None, by=Contender.RECOVERY, record=record))
    assert await asyncio.to_thread(claimed.wait, 30)
    assert await asyncio.to_thread(bed.saw_it_yield)
    let_go.set()
    await offer
    await going
    bed.require_node()
    assert len(bed.disks.process.jobs) == 2


async def test_a_ticket_that_gave_way_to_a_recovery_that_failed_ends_this_start(bed):
    """The next start asks anew; nothing was locked."""

    def record():
        assert bed.saw_it_yield()
        raise SystemFault("no room", reason=Reason.AUDIT_UNWRITABLE)

    bed.parts.tickets.errors = [NOBODY]
    going = asyncio.create_task(bed.start())
    await asyncio.wait_for(bed.listener.open.wait(), 30)
    with pytest.raises(SystemFault):
        await asyncio.to_thread(bed.unlocking.offer, None, by=Contender.RECOVERY, record=record)
    with pytest.raises(Refusal) as ended:
        await going
    assert (ended.value.code, bed.parts.lock.taken, bed.contest.winner) == ("RECOVERY_RACE_LOST", 1, None)


async def test_a_listener_that_does_not_open_keeps_nobody_from_the_clusters_ticket(bed):
    bed.listener.fails = SystemFault("no such user", reason=Reason.CONFIG_INVALID)
    bed.parts.tickets.errors = [NOBODY]
    await bed.start()
    bed.require_node()
    assert "recovery_failed" in bed.log.names


async def test_a_refused_disk_frees_the_claim_for_an_admin(bed):
    bed.disks.device.erase()
    with pytest.raises(DiskError):
        await bed.start(after_seconds=60)
    bed.contest.require_open()
    assert bed.parts.lock.taken == 1


async def test_a_recovery_that_was_cut_after_the_disk_is_gone_on_with(bed):
    bed.disks.disk().open(disk_id=UUID, key=KEY, member=True)
    opener, path = bed.opener(), bed.root / "run/key"
    path.write_bytes(KEY.reveal())
    path.chmod(0o600)
    opener.open(path)
    assert (bed.parts.lock.taken, bed.disks.process.jobs[-1]["state"]) == (2, "opened")


# ---- the listener itself


class Systemctl:
    """Remembers what was asked of systemd."""

    def __init__(self):
        self.calls = []

    def run(self, argv, **options):
        del options
        self.calls.append(tuple(argv))


class FakeDesk:
    """A desk that says who the machine is."""

    def identity(self):
        return b"identity"


class Lines:
    """A log of requests."""

    def event(self, name, /, **fields):
        """Hear of it."""

    @contextmanager
    def request(self, event, **fields):
        del event, fields
        yield self

    def set(self, **fields):
        """Hear of it."""


async def test_the_listener_starts_the_service_answers_at_its_socket_and_stops_both(tmp_path):
    systemctl, socket, closed = Systemctl(), tmp_path / "recovery.sock", []

    @contextmanager
    def desk():
        yield FakeDesk()
        closed.append(True)

    user = pwd.getpwuid(os.getuid())
    listener = SocketRecoveryListener(desk, user=lambda: user, log=Lines(), socket=socket, runner=systemctl)
    async with listener.opened():
        assert systemctl.calls == [("systemctl", "start", "--no-block", RECOVERY_UNIT)]
        assert await recovery_port(socket).identity(correlation_id="c1") == b"identity"
    assert systemctl.calls[1:] == [("systemctl", "stop", "--no-block", RECOVERY_UNIT)]
    assert (socket.exists(), closed) == (False, [True])


async def test_only_root_and_the_services_user_may_ask_at_the_listener(tmp_path, monkeypatch):
    made = {}

    class Recorder:
        def __init__(self, path, **options):
            made.update(options, path=path)

        async def start(self):
            """Listen to nobody."""

        stop = start

    monkeypatch.setattr(recovery, "SocketServer", Recorder)
    user = pwd.struct_passwd(("attested-recovery", "x", 4711, 4712, "", "/", "/"))
    listener = SocketRecoveryListener(
        lambda: nullcontext(FakeDesk()), user=lambda: user, log=Lines(), runner=Systemctl()
    )
    async with listener.opened():
        pass
    assert (made["allowed"], made["group"]) == (frozenset({0, 4711}), 4712)
    assert made["stranger"] is Reason.CALLER_UNKNOWN
