# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node's run, with its collaborators in memory and a machine in a directory."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    KubeadmError,
    NodeLockError,
    Refusal,
    TransportError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import (
    LockReading,
    LockState,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import (
    ControlPlaneTicket,
    NodeRun,
    StepName,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.status import read_status
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import CLUSTER, DISK, SHARED, FakeTickets

BROUGHT = ControlPlaneTicket(files={}, bundle=b"b", policy=b"p", judged={})
NOT_YET = TransportError("nobody there", reason=Reason.PEER_UNREACHABLE)


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


@pytest.mark.parametrize(
    ("version", "kubeadm", "kubelet"),
    [
        pytest.param("1.36.3", "v1.35.4", "Kubernetes v1.35.4", id="another release than the prepared one"),
        pytest.param("1.35.5", "v1.35.4", "Kubernetes v1.35.4", id="another patch"),
        pytest.param("1.35", "v1.35.4", "Kubernetes v1.35.4", id="a minor alone"),
        pytest.param("", "v1.35.4", "Kubernetes v1.35.4", id="no version"),
        pytest.param("", "", "", id="no version, and programs that say none"),
        pytest.param("none", "", "", id="the word for a program that says none"),
        pytest.param("../../etc", "v1.35.4", "Kubernetes v1.35.4", id="nonsense"),
        pytest.param("1.35.4", "v1.36.3", "Kubernetes v1.35.4", id="a kubeadm of another release"),
        pytest.param("1.35.4", "v1.35.4", "Kubernetes v1.34.9", id="a kubelet of another release"),
    ],
)
def test_a_ticket_of_a_version_that_is_not_prepared_is_refused(parts, programs, version, kubeadm, kubelet):
    parts.tickets.ticket = dataclasses.replace(parts.tickets.ticket, kubernetes_version=version)
    programs.versions = {"kubeadm": kubeadm, "kubelet": kubelet}

    with pytest.raises(KubeadmError) as caught:
        run(parts)

    assert caught.value.code == "RELEASE_NOT_PREPARED"
    assert caught.value.reason.value.command == "ansible-playbook attested.kubernetes.prepare --limit NODE"
    assert repr(version) in caught.value.message
    state = parts.journal.load()
    assert (state.phase, state.reason, state.kubernetes_version) == (NodePhase.ASKING, "RELEASE_NOT_PREPARED", None)
    assert (parts.lock.taken, programs.phases()) == (0, [])


def test_a_machine_joins_once_the_version_of_its_ticket_is_prepared(parts, programs):
    parts.tickets.ticket = dataclasses.replace(parts.tickets.ticket, kubernetes_version="1.36.3")
    with pytest.raises(KubeadmError, match="got kubeadm 1.35.4, kubelet 1.35.4"):
        run(parts)

    programs.versions = {"kubeadm": "v1.36.3", "kubelet": "Kubernetes v1.36.3"}
    run(parts)

    state = parts.journal.load()
    assert (state.phase, state.reason, state.kubernetes_version) == (NodePhase.JOINED, None, "1.36.3")


@pytest.mark.parametrize("version", ["1.37.2", "1.31.0"])
def test_a_rebooted_node_of_a_distant_version_stays_out(parts, programs, api, version):
    run(parts)
    reboot(parts, programs, api)
    programs.versions = {"kubeadm": f"v{version}", "kubelet": f"Kubernetes v{version}"}

    with pytest.raises(KubeadmError, match="RELEASE_NOT_PREPARED"):
        run(parts)

    assert not programs.active


@pytest.mark.parametrize("version", ["1.36.3", "1.34.9"])
def test_a_rebooted_node_before_or_after_its_upgrade_comes_back(parts, programs, api, version):
    run(parts)
    reboot(parts, programs, api)
    programs.versions = {"kubeadm": f"v{version}", "kubelet": f"Kubernetes v{version}"}

    run(parts)

    assert programs.active


def test_without_kubeadm_nothing_is_prepared(parts, programs):
    programs.answers[("kubeadm", "version")] = "timeout"
    with pytest.raises(KubeadmError, match="got kubeadm none, kubelet 1.35.4"):
        run(parts)


class WatchedTickets(FakeTickets):
    """Join services, and somebody who looks at the machine whenever it asks."""

    def __init__(self, ticket, look):
        super().__init__(ticket)
        self._look = look
        self.seen = []

    def fetch(self, *, disk_id):
        self.seen.append(self._look())
        return super().fetch(disk_id=disk_id)


def test_whoever_looks_while_it_waits_reads_why_and_until_when(parts, machine, clock):
    """`attested status` and `node_status_info` show this very object; the story of each endpoint is the message."""
    story = "cp-1:9090: expected a ticket, got 'no'; cp-2:9090 PEER_UNREACHABLE: Connection refused"
    tickets = WatchedTickets(parts.tickets.ticket, lambda: read_status(machine, parts.journal).as_result())
    tickets.errors = [TransportError(story, reason=Reason.PEER_UNREACHABLE)]
    run(dataclasses.replace(parts, tickets=tickets), wait_seconds=60)
    fresh, waiting = tickets.seen
    assert (fresh["phase"], fresh["reason"]) == ("Asking", None)
    assert (waiting["reason"], waiting["message"]) == ("PEER_UNREACHABLE", story)
    assert (waiting["next_try"], waiting["needs_person"]) == (clock.now().isoformat(timespec="seconds"), False)
    assert parts.journal.load().reason is None


def test_a_refusal_that_never_passes_is_not_asked_again(parts):
    parts.tickets.errors = [Refusal("no", reason=Reason.TICKET_SIGNATURE)]
    with pytest.raises(Refusal):
        run(parts, wait_seconds=60)
    assert len(parts.tickets.asked) == 1


@pytest.mark.parametrize(
    ("changes"),
    [
        pytest.param({"role": "control-plane"}, id="of a control plane"),
        pytest.param({"control_plane": BROUGHT}, id="of a worker, with what only a control plane may have"),
    ],
)
def test_a_worker_refuses_a_ticket_that_is_not_a_workers_before_the_lock(parts, ticket, changes):
    parts.tickets.ticket = dataclasses.replace(ticket, **changes)
    with pytest.raises(Refusal) as caught:
        run(parts)
    assert caught.value.code == "TICKET_NOT_OURS"
    assert parts.lock.taken == 0


def test_a_control_plane_refuses_the_ticket_of_a_worker_before_it_keeps_anything(member_parts, ticket):
    member_parts.tickets.ticket = ticket
    with pytest.raises(Refusal) as caught:
        run(member_parts)
    assert caught.value.code == "TICKET_NOT_OURS"
    assert (member_parts.keys.kept, member_parts.lock.taken) == ([], 0)


def test_a_control_plane_keeps_its_keys_before_the_lock_and_places_its_files_after_it(member_parts, member_ticket):
    first, second = run(member_parts), run(member_parts)
    names = [step.name for step in first.steps]
    assert names[:4] == ["ticket", "keys", "lock", "write"]
    assert names[-2:] == ["leftovers", "confirm"]
    assert (member_parts.keys.kept, member_parts.keys.locked) == ([member_ticket.control_plane], [False])
    placed = member_parts.machine.paths.kubernetes
    assert {name: (placed / name).read_bytes() for name in SHARED} == SHARED
    assert (second.planned, second.steps) == ((), ())


@pytest.mark.parametrize(
    "before", [pytest.param(step, id=step.name) for step in StepName if step not in (StepName.TICKET, StepName.RESTART)]
)
def test_a_control_plane_killed_before_any_step_ends_joined_with_one_lock(member_parts, before):
    node = NodeRun(member_parts)
    todo = node.plan()
    node.apply(todo[: todo.index(before)])
    run(member_parts)
    assert member_parts.journal.load().phase is NodePhase.JOINED
    assert member_parts.lock.taken == 1
    assert run(member_parts).planned == ()


def test_a_control_plane_that_unlocked_itself_after_a_reboot_asks_nobody(member_parts, programs, api):
    run(member_parts)
    reboot(member_parts, programs, api)
    member_parts.lock.acquire(CLUSTER)  # attested-unlock, before the kubelet
    programs.active = True
    asked = len(member_parts.tickets.asked)
    assert run(member_parts).planned == ()
    assert len(member_parts.tickets.asked) == asked


def test_a_control_plane_whose_boot_stayed_closed_asks_for_its_keys_again(member_parts, programs, api):
    run(member_parts)
    reboot(member_parts, programs, api)
    programs.calls.clear()
    assert [step.name for step in run(member_parts).steps] == ["ticket", "keys", "lock", "write", "kubelet", "confirm"]
    assert programs.phases() == []


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
        patch.setattr(programs, "_phase", die)
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
