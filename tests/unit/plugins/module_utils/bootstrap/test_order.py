# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node's run, with its collaborators in memory and a machine in a directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.attestation import LockReading, LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.bootstrap import (
    EventLogPaths,
    NodeConfig,
    NodeJournal,
    NodePhase,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.bootstrap.order import NodeRun, NodeTicket, Parts
from ansible_collections.attested.kubernetes.plugins.module_utils.bootstrap.plan import StepName
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    KubeadmError,
    NodeLockError,
    Refusal,
    TransportError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm import (
    KubeletCredential,
    NodeSpec,
    NodeView,
    Worker,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.nodelock import Acquisition
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

CLUSTER = bytes(range(32))
DISK = "7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a69"
CONFIG = NodeConfig(
    name="w-1",
    cluster_name="prod",
    cluster_id=CLUSTER,
    endpoints=(("10.0.0.11", 9090),),
    join_ca=b"",
    tcti="device:/dev/tpmrm0",
    logs=EventLogPaths(firmware=Path("/f"), userspace=Path("/u")),
)
NOT_YET = TransportError("nobody there", reason=Reason.PEER_UNREACHABLE)


class FakeLock:
    """The register of one boot."""

    def __init__(self, marker):
        self.reading = LockReading(state=LockState.UNLOCKED)
        self.marker = marker
        self.taken = 0

    def read(self):
        return self.reading

    def acquire(self, cluster_id):
        won = self.reading.state is LockState.UNLOCKED
        self.taken += won
        self.reading = LockReading(state=LockState.LOCKED, cluster_id=cluster_id)
        self.marker.parent.mkdir(parents=True, exist_ok=True)
        self.marker.write_text("x")
        return Acquisition(won=won, reading=self.reading, marker_written=True)


class FakeTickets:
    """Join services that give what they are told to give, and remember who asked."""

    def __init__(self, ticket):
        self.ticket = ticket
        self.errors = []
        self.asked = []
        self.discarded = 0

    def fetch(self, *, disk_id):
        self.asked.append(disk_id)
        if self.errors:
            raise self.errors.pop(0)
        return self.ticket

    def discard(self):
        self.discarded += 1

    def pause(self, error):
        return 2.0 if error.reason is Reason.PEER_UNREACHABLE else None


class FakeApi:
    """The cluster's view of this node."""

    def __init__(self):
        self.boot_id = "boot-1"

    def node(self, name):
        return NodeView(name=name, boot_id=self.boot_id, ready=False)


@pytest.fixture
def ticket(make_pair):
    certificate, key = make_pair("w-1")
    return NodeTicket(
        role="worker",
        disk_id=DISK,
        kubernetes_version="1.35.4",
        api_endpoint="api:6443",
        cluster_ca=b"ca",
        credential=KubeletCredential(certificate=certificate, key=key),
    )


@pytest.fixture
def api():
    return FakeApi()


@pytest.fixture
def parts(machine, api, ticket, tmp_path):
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("boot-1\n")
    worker = Worker(NodeSpec(name="w-1", node_ip="10.0.0.21"), machine, reader=api)
    return Parts(
        config=CONFIG,
        machine=machine,
        worker=worker,
        lock=FakeLock(machine.paths.lock_marker),
        tickets=FakeTickets(ticket),
        journal=NodeJournal(tmp_path / "var/lib/attested/node.json", clock=machine.clock),
        marker=machine.paths.lock_marker,
        boot_id=boot_id,
        confirmed=tmp_path / "run/attested/joined",
    )


def run(parts, **options):
    node = NodeRun(parts)
    return node.apply(node.plan(), **options)


def reboot(parts, programs, api, name="boot-2"):
    """Do what a reset of the machine does."""
    parts.lock.reading = LockReading(state=LockState.UNLOCKED)
    parts.marker.unlink()
    parts.confirmed.unlink(missing_ok=True)
    parts.boot_id.write_text(f"{name}\n")
    programs.active = False
    api.boot_id = name


def test_a_fresh_machine_becomes_a_node_and_then_nothing_is_left(parts, programs):
    first, second = run(parts), run(parts)
    assert [step.name for step in first.steps] == [
        "ticket",
        "lock",
        "write",
        "preflight",
        "kubelet-start",
        "bootstrap-config",
        "confirm",
    ]
    assert (second.planned, second.steps) == ((), ())
    assert parts.lock.taken == 1
    state = parts.journal.load()
    assert (state.phase, state.disk_id, state.reason) == (NodePhase.JOINED, DISK, None)


def test_key_and_ticket_are_forgotten_once_the_kubelet_has_them(parts):
    run(parts)
    assert parts.tickets.discarded == 1


def test_the_first_request_names_no_disk_and_a_later_one_the_assigned(parts, programs, api):
    run(parts)
    reboot(parts, programs, api)
    run(parts)
    assert parts.tickets.asked == [None, DISK]


def test_after_a_reboot_kubeadm_is_skipped(parts, programs, api):
    run(parts)
    reboot(parts, programs, api)
    programs.calls.clear()
    again = run(parts)
    assert [step.name for step in again.steps] == ["ticket", "lock", "write", "kubelet", "confirm"]
    assert programs.phases() == []
    assert parts.journal.load().phase is NodePhase.JOINED


def test_a_ticket_that_cannot_be_had_yet_is_asked_for_again(parts):
    parts.tickets.errors = [NOT_YET, NOT_YET]
    run(parts, wait_seconds=60)
    assert len(parts.tickets.asked) == 3


def test_when_the_time_is_over_the_journal_says_why(parts):
    parts.tickets.errors = [NOT_YET] * 9
    with pytest.raises(TransportError):
        run(parts, wait_seconds=5)
    state = parts.journal.load()
    assert (state.phase, state.reason, state.message) == (NodePhase.ASKING, "PEER_UNREACHABLE", "nobody there")
    assert parts.lock.taken == 0


def test_a_refusal_that_never_passes_is_not_asked_again(parts):
    parts.tickets.errors = [Refusal("no", reason=Reason.TICKET_SIGNATURE)]
    with pytest.raises(Refusal):
        run(parts, wait_seconds=60)
    assert len(parts.tickets.asked) == 1


def test_a_ticket_for_a_control_plane_is_refused_before_the_lock(parts, ticket):
    parts.tickets.ticket = dataclasses.replace(ticket, role="control-plane")
    with pytest.raises(Refusal) as caught:
        run(parts)
    assert caught.value.code == "CONTROL_PLANE_JOIN_UNSUPPORTED"
    assert parts.lock.taken == 0


@pytest.mark.parametrize(
    ("reading", "code"),
    [
        pytest.param(LockReading(state=LockState.FOREIGN, why="?"), "NODELOCK_FOREIGN", id="a foreign event"),
        pytest.param(
            LockReading(state=LockState.LOCKED, cluster_id=bytes(32)), "NODELOCK_OTHER_CLUSTER", id="another cluster"
        ),
    ],
)
def test_a_machine_that_is_not_open_to_this_cluster_asks_nobody(parts, reading, code):
    parts.lock.reading = reading
    with pytest.raises(NodeLockError) as caught:
        run(parts)
    assert caught.value.code == code
    assert parts.tickets.asked == []


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        pytest.param(StepName.LOCK, 2, id="before the lock"),
        pytest.param(StepName.WRITE, 2, id="after the lock"),
        pytest.param(StepName.KUBEADM, 1, id="before kubeadm"),
        pytest.param(StepName.CONFIRM, 1, id="after kubeadm"),
    ],
)
def test_killed_anywhere_the_next_run_ends_joined_with_one_lock(parts, before, asked):
    node = NodeRun(parts)
    todo = node.plan()
    node.apply(todo[: todo.index(before)])
    run(parts)
    assert parts.journal.load().phase is NodePhase.JOINED
    assert parts.lock.taken == 1
    assert len(parts.tickets.asked) == asked
    assert run(parts).planned == ()


def test_killed_during_a_phase_of_kubeadm_it_goes_on_there(parts, programs, monkeypatch):
    def die(words):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(programs, "_kubeadm", die)
        with pytest.raises(KilledError):
            run(parts)
    assert parts.journal.load().phase is NodePhase.JOINING
    run(parts)
    assert parts.journal.load().phase is NodePhase.JOINED
    assert (parts.lock.taken, len(parts.tickets.asked)) == (1, 1)


def test_a_failed_phase_is_kept_for_the_status(parts, programs):
    programs.answers[("kubeadm", "join", "phase", "kubelet-start")] = (1, b"no route to host\n")
    with pytest.raises(KubeadmError):
        run(parts)
    state = parts.journal.load()
    assert (state.phase, state.reason) == (NodePhase.JOINING, "KUBEADM_PHASE_FAILED")
    assert "no route to host" in str(state.message)


def test_a_node_that_does_not_appear_is_told(parts, api):
    api.boot_id = "an older boot"
    with pytest.raises(KubeadmError) as caught:
        run(parts)
    assert caught.value.code == "NODE_NOT_REGISTERED"
    assert "earlier boot" in caught.value.message


def test_a_short_certificate_is_fetched_and_the_kubelet_reads_it(parts, programs, ticket, make_pair, clock):
    run(parts)
    clock.sleep(2 * 24 * 3600 + 1)
    certificate, key = make_pair("w-1", days=6)
    parts.tickets.ticket = dataclasses.replace(ticket, credential=KubeletCredential(certificate=certificate, key=key))
    assert [step.name for step in run(parts).steps] == ["ticket", "write", "restart", "confirm"]
    assert ("systemctl", "restart", "kubelet.service") in programs.calls
