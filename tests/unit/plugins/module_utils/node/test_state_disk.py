# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker's disk between its ticket and its lock: what is made, what is only opened, what is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.generation import parse_record
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import DiskError, SystemFault, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import (
    LockReading,
    LockState,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import NamedDiskKey
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import SealedSecrets
from ansible_collections.attested.kubernetes.plugins.module_utils.node import client, renew
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_program import (
    BootstrapperConfig,
    disk_of,
    exit_code,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import DiskStep, NodeRun, StepName
from ansible_collections.attested.kubernetes.plugins.module_utils.node.state_disk import (
    DiskSettings,
    HostMounts,
    held_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.ticket_store import TicketStore
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.unit.fakes.disk import DEVICE, UUID
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import CONFIG
from ansible_collections.attested.kubernetes.tests.unit.fakes.state_disk import KEY, DiskBed, sealed_key
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services import (
    test_received_ticket as tickets,
)

NAME = DEVICE.rpartition("/")[2]
OTHER_KEY = DiskKey(b"o" * 32)
OLD_NAME, NEW_NAME = "1-" + "ab" * 8, "2-" + "cd" * 8


@pytest.fixture
def bed(tmp_path):
    return DiskBed(tmp_path)


@pytest.fixture
def worker(parts, ticket, bed):
    parts.tickets.ticket = dataclasses.replace(ticket, disk_id=UUID, disk_key=sealed_key())
    return dataclasses.replace(parts, disk=bed.disk())


def run(parts):
    node = NodeRun(parts)
    return node.apply(node.plan())


def names(outcome):
    return [step.name for step in outcome.steps]


def reboot(parts, programs, api, bed):
    """Do what a reset of the machine does, to its disk too."""
    bed.device.reboot()
    parts.lock.reading = LockReading(state=LockState.UNLOCKED)
    parts.marker.unlink(missing_ok=True)
    parts.confirmed.unlink(missing_ok=True)
    parts.boot_id.write_text("boot-2\n")
    programs.active = False
    api.boot_id = "boot-2"


# ---- in the order of a node


def test_a_fresh_worker_makes_its_disk_before_its_lock_and_then_nothing_is_left(worker, bed):
    first, second = run(worker), run(worker)
    assert names(first)[:4] == ["ticket", "disk", "lock", "write"]
    assert (second.planned, second.steps) == ((), ())
    assert (bed.device.wipes, bed.device.token, bed.device.mapped) == (1, True, True)
    assert bed.device.slots == {0: KEY.reveal()}


def test_what_the_kubelet_writes_lies_on_the_disk_and_is_there_again_after_a_reboot(worker, bed, programs, api):
    run(worker)
    kubelet = worker.machine.paths.kubelet
    written = sorted(path.name for path in kubelet.iterdir())
    reboot(worker, programs, api, bed)
    assert list(kubelet.iterdir()) == []
    programs.calls.clear()
    assert names(run(worker)) == ["ticket", "disk", "lock", "write", "kubelet", "confirm"]
    assert (sorted(path.name for path in kubelet.iterdir()), programs.phases()) == (written, [])
    assert (bed.device.wipes, worker.journal.load().phase) == (1, NodePhase.JOINED)


def test_each_boots_unlock_is_counted_once(worker, bed, programs, api):
    run(worker)
    counted = bed.process.counter.value
    reboot(worker, programs, api, bed)
    run(worker)
    run(worker)
    assert bed.process.counter.value == counted + 1


@pytest.mark.parametrize(
    "before",
    [DiskStep.DISK, StepName.LOCK, StepName.WRITE, StepName.KUBEADM, StepName.CONFIRM],
    ids=lambda one: one.name,
)
def test_killed_before_any_step_the_next_run_ends_joined_with_one_wipe(worker, bed, before):
    node = NodeRun(worker)
    todo = node.plan()
    node.apply(todo[: todo.index(before)])
    run(worker)
    assert (worker.journal.load().phase, worker.lock.taken, bed.device.wipes) == (NodePhase.JOINED, 1, 1)
    assert run(worker).planned == ()


def test_a_kill_between_the_unlock_and_the_memory_of_its_volume_is_made_up_for_before_the_lock(worker, bed):
    node = NodeRun(worker)
    node.apply(node.plan()[:2])
    (bed.paths.journal.parent / "volume").unlink()
    assert names(run(worker))[:3] == ["ticket", "disk", "lock"]
    assert (len(bed.volumes.load()), bed.device.wipes) == (64, 1)


def test_a_refused_disk_leaves_the_machine_unlocked_and_the_journal_says_why(worker, bed):
    bed.device.format(uuid=UUID, key=OTHER_KEY, progress=lambda *_numbers: None)
    bed.device.write_token(initialised=False)
    bed.device.write_token(initialised=True)
    assert code_of(lambda: run(worker)) == "DISK_KEY_WRONG"
    state = worker.journal.load()
    assert (state.phase, state.reason, worker.lock.taken) == (NodePhase.ASKING, "DISK_KEY_WRONG", 0)
    assert not worker.machine.paths.kubelet_config.exists()


def test_while_no_key_service_answers_the_disk_of_a_rebooted_node_stays_closed(worker, bed, programs, api):
    run(worker)
    reboot(worker, programs, api, bed)
    done = len(bed.process.jobs)
    worker.tickets.errors.append(TransportError("expected an answer", reason=Reason.JOIN_SERVICE_UNAVAILABLE))
    assert code_of(lambda: run(worker)) == "JOIN_SERVICE_UNAVAILABLE"
    assert (len(bed.process.jobs), bed.device.mapped, worker.lock.taken) == (done, False, 1)
    assert worker.journal.load().reason == "JOIN_SERVICE_UNAVAILABLE"
    assert names(run(worker))[:3] == ["ticket", "disk", "lock"]


def test_a_ticket_without_the_disks_key_opens_nothing(worker, ticket, bed):
    worker.tickets.ticket = ticket
    assert code_of(lambda: run(worker)) == "INTERNAL"
    assert (bed.process.jobs, worker.lock.taken) == ([], 0)


def test_while_the_master_secret_is_rotated_a_reboot_opens_by_whichever_key_the_disk_is_under(
    worker, ticket, bed, programs, api
):
    """The ticket brings both; the boot opens the disk and leaves the exchange to the rotation."""
    run(worker)
    for lead, other in ((OTHER_KEY, KEY), (KEY, OTHER_KEY)):
        reboot(worker, programs, api, bed)
        sealed = sealed_key(lead, name=NEW_NAME, others=[NamedDiskKey(name=OLD_NAME, key=other)])
        worker.tickets.ticket = dataclasses.replace(ticket, disk_id=UUID, disk_key=sealed)
        assert names(run(worker))[:3] == ["ticket", "disk", "lock"]
        assert (bed.device.mapped, bed.device.slots, bed.device.wipes) == (True, {0: KEY.reveal()}, 1)


def test_a_fresh_workers_disk_is_under_the_key_that_leads_and_its_record_names_it(worker, ticket, bed):
    sealed = sealed_key(name=NEW_NAME, others=[NamedDiskKey(name=OLD_NAME, key=OTHER_KEY)])
    worker.tickets.ticket = dataclasses.replace(ticket, disk_id=UUID, disk_key=sealed)
    run(worker)
    assert bed.device.slots == {0: KEY.reveal()}
    assert parse_record(bed.paths.record.read_bytes()).key == NEW_NAME


def test_without_a_disk_nothing_of_it_is_planned(parts):
    assert DiskStep.DISK not in NodeRun(parts).plan()


# ---- what is never made anew


def test_a_members_disk_that_came_back_blank_is_not_formatted(worker, bed, programs, api):
    run(worker)
    reboot(worker, programs, api, bed)
    bed.device.erase()
    bed.device.slots = None
    assert code_of(lambda: run(worker)) == "STATE_DISK_ROLLED_BACK"
    assert (bed.device.wipes, worker.lock.taken) == (1, 1)


def test_a_node_that_has_joined_without_a_disk_gets_none(parts, ticket, bed, programs, api):
    run(parts)
    reboot(parts, programs, api, bed)
    parts.tickets.ticket = dataclasses.replace(ticket, disk_id=UUID, disk_key=KEY)
    assert code_of(lambda: run(dataclasses.replace(parts, disk=bed.disk()))) == "STATE_DISK_TOO_LATE"
    assert (bed.process.jobs, bed.device.wipes) == ([], 0)


def test_a_site_that_lets_a_disk_go_lets_only_an_unused_one_go(worker, bed, programs, api):
    worker = dataclasses.replace(worker, disk=bed.disk(erase=NAME))
    run(worker)
    reboot(worker, programs, api, bed)
    run(worker)
    assert [job["erase"] for job in bed.process.jobs] == [NAME, ""]


def test_what_a_directory_holds_is_not_covered(worker, bed):
    kubelet = worker.machine.paths.kubelet
    kubelet.mkdir(parents=True)
    (kubelet / "left").touch()
    assert code_of(lambda: run(worker)) == "STATE_DISK_HIDES_DATA"
    assert (bed.device.wipes, worker.lock.taken) == (0, 0)


def test_a_memory_that_holds_something_else_is_refused(bed):
    (bed.paths.journal.parent).mkdir()
    (bed.paths.journal.parent / "volume").write_text("rm -rf\n")
    assert code_of(bed.volumes.load) == "STATE_DISK_OPTION"


# ---- the key


def told_to(process):
    return (json.dumps(process.jobs) + repr(process.commands)).encode()


def test_a_tickets_key_goes_to_its_process_sealed_and_is_in_no_file(worker, bed):
    run(worker)
    told = told_to(bed.process)
    assert [one for one in spellings(KEY.reveal()) if one in told] == []
    assert [job["key_file"] for job in bed.process.jobs] == [""]
    assert not bed.key_directory.exists()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"secret": b"S" * 32}, "SEAL_UNOPENABLE", id="of another machine"),
        pytest.param({"binding": b"B" * 32}, "SEAL_UNOPENABLE", id="of another exchange"),
        pytest.param({"one_time_key": OneTimeKey.generate()}, "SEAL_UNOPENABLE", id="of another boot"),
        pytest.param({"cluster_id": b"c" * 32}, "TICKET_NOT_OURS", id="of another cluster"),
        pytest.param({"role": Role.CONTROL_PLANE}, "TICKET_MALFORMED", id="of another role"),
    ],
)
def test_a_key_that_is_not_this_exchanges_changes_nothing(worker, ticket, bed, changes, code):
    worker.tickets.ticket = dataclasses.replace(ticket, disk_id=UUID, disk_key=sealed_key(**changes))
    assert code_of(lambda: run(worker)) == code
    assert (bed.device.wipes, worker.lock.taken) == (0, 0)


def test_a_key_of_a_stored_ticket_is_in_no_command_line_and_no_job_and_is_gone_afterwards(bed):
    bed.disk().open(disk_id=UUID, key=KEY, member=False)
    told = told_to(bed.process)
    assert [one for one in spellings(KEY.reveal()) if one in told] == []
    assert str(bed.key_directory).encode() in told
    assert list(bed.key_directory.iterdir()) == []


def test_a_key_that_opens_nothing_is_gone_as_well(bed):
    bed.disk().open(disk_id=UUID, key=KEY, member=False)
    bed.device.reboot()
    assert code_of(lambda: bed.disk().open(disk_id=UUID, key=OTHER_KEY, member=True)) == "DISK_KEY_WRONG"
    assert list(bed.key_directory.iterdir()) == []


def test_a_key_is_held_in_a_file_of_root_alone(tmp_path):
    with held_key(KEY, directory=tmp_path / "key", require_memory=lambda _folder: None) as path:
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (KEY.reveal(), 0o600)
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not path.exists()


def test_a_key_is_written_nowhere_but_to_memory(tmp_path):
    def refuse(folder):
        raise SystemFault(f"{folder}", reason=Reason.NOT_TMPFS)

    with pytest.raises(SystemFault), held_key(KEY, directory=tmp_path / "key", require_memory=refuse):
        pass
    assert list((tmp_path / "key").iterdir()) == []


def test_the_order_forgets_the_key_once_the_disk_is_open(worker):
    node = NodeRun(worker)
    node.apply(node.plan()[:2])
    assert node._ticket.disk_key is None


@pytest.fixture
def given(monkeypatch):
    """A genuine ticket that the services give; whoever opens it in this process fails."""

    def refuse(_sealed):
        raise AssertionError("the ticket was opened here")

    closed = tickets.Node().read()
    monkeypatch.setattr(client, "fetch_closed_ticket", lambda *_asked, **_known: closed)
    monkeypatch.setattr(client.JoinTickets, "_question", lambda _self, _disk: (None, None))
    monkeypatch.setattr(SealedSecrets, "opened", refuse)
    return closed


def test_the_process_that_asks_for_a_ticket_does_not_open_it(given):
    source = client.JoinTickets(CONFIG, None, store=TicketStore(), handle=None, keeps_closed=True)
    ticket = source.fetch(disk_id=None)
    assert (ticket.disk_key, ticket.disk_id) == (given.sealed, given.public.disk_id)
    assert ticket.credential.certificate == given.public.kubelet_certificate


def test_a_renewal_opens_no_ticket(given):
    ticket = renew.own_renewal(CONFIG)._tickets.fetch(disk_id=given.public.disk_id)
    assert ticket.credential.certificate == given.public.kubelet_certificate


# ---- how it is named, and where it is done


def test_the_other_process_works_among_the_mounts_of_the_machine():
    seen = []

    class Recorder:
        def run(self, argv, **options):
            seen.append((tuple(argv), options["stdin"]))

    HostMounts(Recorder()).run(["python", "-m", "helper"], stdin=b"{}")
    assert seen == [(("nsenter", "--target", "1", "--mount", "--", "python", "-m", "helper"), b"{}")]


@pytest.mark.parametrize(
    ("device", "erase", "code"),
    [
        pytest.param("/dev/sdb", "", "STATE_DISK_OPTION: a disk below", id="by order"),
        pytest.param(DEVICE, "virtio-other", "STATE_DISK_OPTION: as the disk to erase", id="another one to erase"),
    ],
)
def test_a_disk_is_named_by_its_id(device, erase, code):
    assert code_of(lambda: DiskSettings.of(device, erase=erase)) == code


def test_no_disk_is_no_setting():
    assert DiskSettings.of("") is None
    assert disk_of(BootstrapperConfig(node_ip="10.0.0.21")) is None


def test_a_disk_is_one_of_the_bootstrappers_settings():
    assert disk_of(BootstrapperConfig(node_ip="10.0.0.21", state_disk=DEVICE)) == DiskSettings(device=DEVICE)


def test_over_ssh_a_control_plane_gets_none(monkeypatch):
    monkeypatch.setattr(client, "load_node_config", lambda _path: CONFIG)
    asked = {
        "node_ip": "10.0.0.12",
        "second_node_ip": "",
        "cri_socket": "",
        "ignore_preflight_errors": [],
        "allow_cgroup_v1": False,
        "api_proxy": "",
    }
    params = {**asked, "node_config": "", "state": "present", "role": "control-plane", "state_disk": DEVICE}
    assert code_of(lambda: client.run_node(params, check_mode=True)) == "STATE_DISK_OPTION"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        pytest.param(Reason.STATE_DISK_OCCUPIED, 78, id="something is on it: a person"),
        pytest.param(Reason.STATE_DISK_MISSING, 1, id="not there yet: another start"),
    ],
)
def test_which_refusals_another_start_may_get_over(reason, code):
    assert exit_code(DiskError("expected a disk", reason=reason)) == code
