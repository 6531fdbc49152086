# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane whose state lies on a disk: made by init or join, back after a reset by a ticket or an admin."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.generation import parse_record
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KeyServiceError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import (
    LockReading,
    LockState,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.initial_disk import FounderDisk
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Progress
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import INIT_PHASES
from ansible_collections.attested.kubernetes.plugins.module_utils.node import client
from ansible_collections.attested.kubernetes.plugins.module_utils.node.bootstrapper import (
    BootAction,
    Membership,
    choose_action,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.claim import Claim, ClaimFile, Contender, Race
from ansible_collections.attested.kubernetes.plugins.module_utils.node.join_claim import JoinContender
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import NodeRun
from ansible_collections.attested.kubernetes.plugins.module_utils.node.playbook import UNITS, MemberServices
from ansible_collections.attested.kubernetes.plugins.module_utils.node.recovery import RecoveredNode
from ansible_collections.attested.kubernetes.plugins.module_utils.node.state_disk import (
    DiskSettings,
    FoundingDisk,
    followed,
    settle_founder,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.wipe import DestroyedDisk, known_disk_id
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import ClosedTicket
from ansible_collections.attested.kubernetes.plugins.module_utils.services.ticket_store import TicketStore
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.unit.fakes.disk import DEVICE, UUID
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import CLUSTER, CONFIG
from ansible_collections.attested.kubernetes.tests.unit.fakes.state_disk import KEY, DiskBed, sealed_key
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.node.test_init_machine import Machine
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services import (
    test_received_ticket as tickets,
)

INIT = Claim(Contender.INIT, "a" * 64)


@pytest.fixture
def bed(tmp_path):
    bed = DiskBed(tmp_path)
    paths = dataclasses.replace(
        bed.paths, directories=(*bed.paths.directories, tmp_path / "var/lib/etcd", tmp_path / "etc/kubernetes")
    )
    bed.paths = bed.device.paths = bed.process.paths = paths
    (tmp_path / "etc").mkdir(exist_ok=True)
    return bed


@pytest.fixture
def member(member_parts, member_ticket, bed):
    member_parts.tickets.ticket = dataclasses.replace(member_ticket, disk_id=UUID, disk_key=sealed_key())
    return dataclasses.replace(member_parts, disk=bed.disk())


def reset(parts, bed, api):
    """Do what a reset of the machine does."""
    bed.device.reboot()
    parts.lock.reading = LockReading(state=LockState.UNLOCKED)
    parts.marker.unlink(missing_ok=True)
    parts.confirmed.unlink(missing_ok=True)
    parts.machine.runner.active = False
    parts.boot_id.write_text("boot-2\n")
    api.boot_id = "boot-2"


def made(machine):
    """Let an init have come to its end."""
    machine.journal.save(
        Progress(operation="init", config_sha256="0" * 64, done=tuple(one.name for one in INIT_PHASES))
    )


# ---- a member


def test_a_members_keys_are_kept_on_its_open_disk_before_its_lock(member, bed, monkeypatch):
    seen = []
    take = member.keys.take
    monkeypatch.setattr(member.keys, "take", lambda brought: seen.append(bed.device.mapped) or take(brought))
    run = NodeRun(member)
    done = run.apply(run.plan())
    assert [step.name for step in done.steps][:5] == ["ticket", "disk", "keys", "lock", "write"]
    assert (seen, member.keys.locked) == ([True], [False])


def test_a_rebooted_member_finds_its_files_again_and_is_taken_through_no_phase(member, bed, programs, api):
    run = NodeRun(member)
    run.apply(run.plan())
    there = sorted(path.name for path in member.machine.paths.kubernetes.iterdir())
    reset(member, bed, api)
    assert list(member.machine.paths.kubernetes.iterdir()) == []
    programs.calls.clear()
    run = NodeRun(member)
    run.apply(run.plan())
    assert sorted(path.name for path in member.machine.paths.kubernetes.iterdir()) == there
    assert (programs.phases(), bed.device.wipes, member.journal.load().phase) == ([], 1, NodePhase.JOINED)


def race_of(parts, tmp_path):
    return Race(parts.lock, cluster_id=CLUSTER, claims=ClaimFile(tmp_path / "run/attested/claim.json"))


def test_in_a_race_the_disk_is_made_in_the_turn_of_who_wins(member, bed, tmp_path):
    JoinContender(member, race_of(member, tmp_path)).run()
    assert (bed.device.mapped, bed.device.wipes, len(member.keys.kept), member.lock.taken) == (True, 1, 1, 1)


def test_who_loses_the_race_has_not_touched_the_disk(member, bed, tmp_path, monkeypatch):
    race, fetch = race_of(member, tmp_path), member.tickets.fetch

    def slowly(*, disk_id):
        with race.turn(INIT) as turn:
            turn.take()
        return fetch(disk_id=disk_id)

    monkeypatch.setattr(member.tickets, "fetch", slowly)
    assert code_of(JoinContender(member, race).run) == "RACE_LOST"
    assert (bed.process.jobs, bed.device.wipes, member.keys.kept) == ([], 0, [])


def test_a_disk_that_is_refused_in_the_turn_leaves_the_race_open(member, bed, tmp_path):
    (tmp_path / "var/lib/etcd").mkdir(parents=True)
    (tmp_path / "var/lib/etcd/member").touch()
    race = race_of(member, tmp_path)
    assert code_of(JoinContender(member, race).run) == "STATE_DISK_HIDES_DATA"
    assert (race.winner(), member.keys.kept, bed.device.wipes) == (None, [], 0)


def test_its_ticket_brings_the_disks_key_closed_and_the_rest_open(monkeypatch):
    node = tickets.Node()
    closed = ClosedTicket(
        public=dataclasses.replace(node.read().public, role=Role.CONTROL_PLANE),
        sealed=sealed_key(),
        kubelet_key=node.read().kubelet_key,
        registers={4: b"4" * 32},
    )
    secrets = SimpleNamespace(
        control_plane_files={}, key_service_bundle=KEY, policy=KEY
    )  # nothing of a ticket's form matters here
    monkeypatch.setattr(type(closed.sealed), "opened", lambda _self: secrets)
    monkeypatch.setattr(client, "fetch_closed_ticket", lambda *_asked, **_known: closed)
    monkeypatch.setattr(client.JoinTickets, "_question", lambda _self, _disk: (None, None))
    source = client.JoinTickets(
        CONFIG, None, store=TicketStore(), handle=None, role=Role.CONTROL_PLANE, keeps_closed=True
    )
    ticket = source.fetch(disk_id=None)
    assert ticket.disk_key is closed.sealed
    assert (ticket.control_plane.bundle, ticket.control_plane.judged) == (KEY.reveal(), {4: b"4" * 32})


# ---- the founder


class Chance:
    """Draws the one id that the disk of these tests takes."""

    def token(self, size):
        """Return its bytes."""
        assert size == len(UUID.replace("-", "")) // 2
        return bytes.fromhex(UUID.replace("-", ""))


class Founding(Machine):
    """A machine with a disk that waits for its first control plane."""

    def __init__(self, root, bed, machine, journal):
        super().__init__(root)
        self.bed, self.kubeadm, self.journal = bed, machine, journal
        self.note = FounderDisk(root / "var/lib/attested/founder-disk")
        self.disk = FoundingDisk(bed.disk(), machine=machine, journal=journal, random=Chance(), note=self.note)

    @property
    def key(self):
        """The key that the disk has to be under."""
        return self.bundle.ring.disk_keys(self.note.load())[0]


@pytest.fixture
def founding(tmp_path, bed, parts):
    return Founding(tmp_path, bed, parts.machine, parts.journal)


def test_its_disk_is_made_under_an_id_that_it_draws_and_the_key_that_follows(founding, bed):
    founding.found()
    assert (founding.note.load().uuid, bed.process.jobs[-1]["uuid"]) == (UUID, UUID)
    assert bed.device.slots == {0: founding.key.key.reveal()}
    assert parse_record(bed.paths.record.read_bytes()).key == founding.key.name
    assert list(bed.key_directory.iterdir()) == []


def test_the_disk_is_open_before_anything_is_kept(founding, bed, monkeypatch):
    seen = []
    write = founding.keeping.write
    monkeypatch.setattr(
        founding.keeping, "write", lambda *args, **kw: seen.append(bed.device.mapped) or write(*args, **kw)
    )
    founding.found()
    assert seen == [True]


def test_who_waits_for_a_wipe_hears_how_far_it_is():
    heard, three = [], threading.Event()

    def report(text):
        heard.append(text)
        if len(heard) >= 3:
            three.set()

    found = iter([{}, *({"done_bytes": done, "size_bytes": 200} for done in (0, 51, 199))])
    with followed(lambda: next(found, {}), report, seconds=0.01):
        assert three.wait(60)
    assert heard == [f"Wipe the state disk: {percent} %" for percent in (0, 25, 99)]


def test_a_wipe_that_fails_ends_its_follower():
    with pytest.raises(KeyServiceError), followed(dict, lambda _text: None, seconds=0.01):
        raise KeyServiceError("no", reason=Reason.INTERNAL)
    assert "wipe" not in [thread.name for thread in threading.enumerate()]


def test_a_disk_that_is_refused_leaves_the_machine_open(founding, tmp_path):
    (tmp_path / "var/lib/etcd").mkdir(parents=True)
    (tmp_path / "var/lib/etcd/member").touch()
    assert code_of(founding.found) == "STATE_DISK_HIDES_DATA"
    assert (founding.register.events, founding.keeping.kept) == (0, [])


def test_an_init_that_failed_goes_on_with_the_same_disk(founding, bed):
    founding.playbooks.breaks = True
    assert code_of(founding.found) == "PLAYBOOK_FAILED"
    drawn = founding.note.load()
    founding.playbooks.breaks = False
    founding.found()
    assert (founding.note.load(), bed.device.wipes) == (drawn, 1)


def test_an_init_that_a_reset_interrupted_finds_the_volume_as_it_was(founding, bed):
    founding.playbooks.breaks = True
    assert code_of(founding.found) == "PLAYBOOK_FAILED"
    bed.device.reboot()
    founding.register.__init__()
    founding.playbooks.breaks = False
    founding.found()
    assert (bed.device.mapped, bed.device.wipes) == (True, 1)


def test_once_the_cluster_is_made_the_journal_knows_the_disk(founding):
    founding.found()
    assert founding.journal.load().phase is NodePhase.FRESH  # in this test no phase of kubeadm was done
    made(founding.kubeadm)
    founding.found()
    assert (founding.journal.load().phase, founding.journal.load().disk_id) == (
        NodePhase.JOINED,
        founding.note.load().uuid,
    )


def test_a_join_client_that_gives_way_does_not_take_the_disks_id_with_it(founding):
    before = founding.journal.snapshot()
    founding.journal.enter(NodePhase.ASKING, disk_id=UUID)
    founding.found()
    founding.journal.put_back(before)
    made(founding.kubeadm)
    settle_founder(founding.kubeadm, founding.journal, note=founding.note)
    assert founding.journal.load().disk_id == founding.note.load().uuid


def test_a_machine_without_such_a_disk_has_nothing_to_settle(founding):
    made(founding.kubeadm)
    settle_founder(founding.kubeadm, founding.journal, note=founding.note)
    assert founding.journal.load().phase is NodePhase.FRESH


@pytest.mark.parametrize(
    ("membership", "has_disk", "action"),
    [
        pytest.param(Membership.INITIALISED, True, BootAction.REJOIN, id="its keys lie on its disk"),
        pytest.param(Membership.INITIALISED, False, BootAction.KEYS, id="without a disk they come with an init"),
        pytest.param(Membership.INITIALISING, True, BootAction.KEYS, id="an init that was interrupted is gone on with"),
        pytest.param(Membership.NONE, True, BootAction.RACE, id="nobody's"),
    ],
)
def test_the_way_of_a_founder_after_a_reset(membership, has_disk, action):
    reading = LockReading(state=LockState.UNLOCKED)
    chosen = choose_action(reading, cluster_id=CLUSTER, membership=membership, claim=None, has_disk=has_disk)
    assert chosen is action


# ---- an admin's recovery


class Keys:
    """Keys on a disk."""

    def __init__(self, bed, lock):
        self.bed, self.lock, self.seen, self.fails = bed, lock, [], None

    def open(self):
        """Open them."""
        if self.fails:
            raise self.fails
        self.seen.append((self.bed.device.mapped, self.lock.taken))


def test_an_admin_opens_disk_then_keys_then_the_machine_is_locked(member, bed, api, tmp_path):
    run = NodeRun(member)
    run.apply(run.plan())
    reset(member, bed, api)
    keys = Keys(bed, member.lock)
    key_file = tmp_path / "run/key"
    key_file.write_bytes(KEY.reveal())
    key_file.chmod(0o600)
    node = RecoveredNode(disk=bed.disk(), disk_id=UUID, lock=member.lock, cluster_id=CLUSTER, keys=keys)
    keys.fails = KeyServiceError("others", reason=Reason.CLUSTER_ID_MISMATCH)
    assert code_of(lambda: node.open(key_file)) == "CLUSTER_ID_MISMATCH"
    assert member.lock.taken == 1
    keys.fails = None
    node.open(key_file)
    assert (keys.seen, member.lock.taken) == ([(True, 1)], 2)


# ---- a reset


def test_a_reset_stops_who_uses_the_disk_and_overwrites_its_keys(member, bed, programs):
    run = NodeRun(member)
    run.apply(run.plan())
    parting = DestroyedDisk(
        DiskSettings(device=DEVICE),
        tcti="",
        role=Role.CONTROL_PLANE,
        disk_id=UUID,
        runner=programs,
        disk=bed.disk(),
    )
    programs.calls.clear()
    assert parting.plan() == ("close", "remember", "discard")
    assert (programs.calls, bed.device.mapped) == ([], True)
    parting.apply()
    ((program, verb, *units),) = programs.calls
    assert (program, verb, set(units) > set(UNITS)) == ("systemctl", "stop", True)
    assert (bed.device.mapped, bed.device.slots, parting.plan()) == (False, None, ())


def test_which_disk_a_machine_has_is_what_was_assigned_or_drawn(parts, tmp_path):
    note = FounderDisk(tmp_path / "note")
    assert known_disk_id(parts.journal, note=note) == ""
    note.drawn(SystemRandom())
    assert known_disk_id(parts.journal, note=note) == note.load().uuid
    parts.journal.enter(NodePhase.ASKING, disk_id=UUID)
    assert known_disk_id(parts.journal, note=note) == UUID


# ---- its services


def test_what_waits_for_the_keys_is_started_where_it_is_installed(parts, tmp_path, programs):
    services = MemberServices(
        None, machine=parts.machine, journal=parts.journal, playbooks=None, listener=None, units=tmp_path
    )
    programs.calls.clear()
    services.resume()
    assert programs.calls == []
    (tmp_path / UNITS[0]).touch()
    services.resume()
    assert programs.calls == [("systemctl", "start", "--no-block", UNITS[0])]


def test_the_id_is_drawn_once_and_nothing_else_is_taken_for_one(tmp_path):
    note = FounderDisk(tmp_path / "state/founder-disk")
    assert note.load() is None
    drawn = note.drawn(SystemRandom())
    assert (note.drawn(SystemRandom()), FounderDisk(tmp_path / "state/founder-disk").load()) == (drawn, drawn)
    Path(tmp_path / "state/founder-disk").write_text("../../etc\n")
    assert code_of(note.load) == "DISK_ID_MALFORMED"
    assert DiskId(drawn.uuid) == drawn
