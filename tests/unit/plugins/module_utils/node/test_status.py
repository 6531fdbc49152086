# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's journal and what is said of a node."""

from __future__ import annotations

import dataclasses
import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import INIT_PHASES
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.status import read_status
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded

REFUSED = Refusal("expected PCR 9 to be allowed", reason=Reason.TICKET_REFUSED)


@pytest.fixture
def journal(tmp_path, clock):
    return NodeJournal(tmp_path / "node.json", clock=clock)


def test_a_machine_without_a_journal_is_fresh(journal):
    assert journal.load().phase is NodePhase.FRESH


def test_what_was_kept_comes_back(journal):
    journal.enter(NodePhase.LOCKED, disk_id="d", kubernetes_version="1.35.4")
    journal.fail(REFUSED, next_try_seconds=30)
    state = journal.load()
    assert (state.phase, state.disk_id, state.kubernetes_version) == (NodePhase.LOCKED, "d", "1.35.4")
    assert (state.reason, state.message) == ("TICKET_REFUSED", "expected PCR 9 to be allowed")
    assert (state.next_try - state.since).total_seconds() == 30


def test_a_success_forgets_the_failure_and_keeps_the_disk(journal):
    journal.enter(NodePhase.ASKING, disk_id="d")
    journal.fail(REFUSED)
    state = journal.enter(NodePhase.ASKING)
    assert (state.reason, state.disk_id) == (None, "d")


def test_a_phase_begins_once(journal, clock):
    first = journal.enter(NodePhase.ASKING).since
    clock.sleep(60)
    assert journal.enter(NodePhase.ASKING).since == first
    assert journal.enter(NodePhase.LOCKED).since > first


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"version": 2}, id="another version"),
        pytest.param({"phase": "Dancing"}, id="an unknown phase"),
        pytest.param({"since": "yesterday"}, id="a time that is none"),
        pytest.param({"disk_id": 7}, id="a disk id that is no text"),
    ],
)
def test_a_malformed_journal_is_refused(journal, tmp_path, change):
    journal.enter(NodePhase.JOINED)
    path = tmp_path / "node.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(SystemFault) as caught:
        journal.load()
    assert Coded(caught.value) == "NODE_JOURNAL_MALFORMED: the journal of this node"


@pytest.mark.parametrize(
    ("shown", "api"),
    [
        pytest.param(
            b"ActiveState=active\nStatusText=10.0.0.12:6443 answered last; known: 10.0.0.12:6443\n",
            "10.0.0.12:6443 answered last; known: 10.0.0.12:6443",
            id="what it says",
        ),
        pytest.param(b"ActiveState=active\nStatusText=\n", "running", id="it says nothing"),
        pytest.param(
            b"ActiveState=failed\nStatusText=x\n",
            "attested-api-endpoint.service is failed; read journalctl -u attested-api-endpoint",
            id="it does not run",
        ),
    ],
)
def test_a_machine_with_a_proxy_says_which_control_plane_it_uses(machine, journal, programs, monkeypatch, shown, api):
    machine.paths.api_endpoint.parent.mkdir(parents=True)
    machine.paths.api_endpoint.touch()
    run = programs.run

    def answered(argv, **options):
        done = run(argv, **options)
        return dataclasses.replace(done, stdout=shown) if "show" in argv else done

    monkeypatch.setattr(programs, "run", answered)
    assert read_status(machine, journal).as_result()["api"] == api


def test_a_machine_without_a_proxy_is_not_asked_for_one(machine, journal, programs):
    assert read_status(machine, journal).api is None
    assert not any("show" in words for words in programs.calls)


def test_a_fresh_machine_needs_a_person(machine, journal):
    status = read_status(machine, journal)
    assert status.needs_person
    assert "init" in status.to_do


def test_a_joined_node_needs_nobody(locked, journal, programs):
    journal.enter(NodePhase.JOINED)
    programs.active = True
    status = read_status(locked, journal)
    assert (status.needs_person, status.to_do) == (False, "Nothing.")


def test_a_rebooted_node_needs_the_playbook(machine, journal):
    journal.enter(NodePhase.JOINED)
    assert "fetches its ticket again" in read_status(machine, journal).to_do


def test_a_stopped_kubelet_needs_a_person(locked, journal):
    journal.enter(NodePhase.JOINED)
    assert read_status(locked, journal).to_do == Reason.KUBELET_NOT_RUNNING.value.hint


def test_a_failure_says_what_its_code_says(machine, journal):
    journal.fail(REFUSED)
    assert read_status(machine, journal).to_do == Reason.TICKET_REFUSED.value.hint


def test_a_node_that_tries_again_by_itself_needs_nobody(machine, journal):
    journal.fail(REFUSED, next_try_seconds=30)
    assert not read_status(machine, journal).needs_person


@pytest.mark.parametrize(
    "passed", [pytest.param(3600, id="killed while it waited"), pytest.param(-3600, id="its clock was ahead")]
)
def test_a_try_that_never_came_needs_a_person(machine, journal, clock, passed):
    journal.fail(REFUSED, next_try_seconds=30)
    clock.sleep(passed)
    assert read_status(machine, journal).needs_person


@pytest.mark.parametrize("state", ["active", "activating"])
def test_while_the_bootstrapper_is_at_work_nobody_is_needed(machine, journal, programs, state):
    programs.bootstrapper = state
    status = read_status(machine, journal)
    assert (status.bootstrapper_active, status.needs_person) == (True, False)
    assert "attested-bootstrapper is at work" in status.to_do


@pytest.mark.parametrize("state", ["failed", "inactive", "unknown", ""])
def test_a_bootstrapper_that_gave_up_changes_nothing(machine, journal, programs, state):
    programs.bootstrapper = state
    status = read_status(machine, journal)
    assert (status.bootstrapper_active, status.needs_person) == (False, True)


def test_what_failed_for_good_needs_a_person_although_the_bootstrapper_tries_again(machine, journal, programs):
    programs.bootstrapper = "activating"
    journal.fail(REFUSED)
    status = read_status(machine, journal)
    assert (status.needs_person, status.to_do) == (True, Reason.TICKET_REFUSED.value.hint)


def test_a_node_that_is_up_has_nothing_to_do_while_the_bootstrapper_ends(locked, journal, programs):
    journal.enter(NodePhase.JOINED)
    programs.active, programs.bootstrapper = True, "active"
    assert read_status(locked, journal).to_do == "Nothing."


def init_done(machine, count):
    """Leave what init leaves after ``count`` phases."""
    machine.paths.state.mkdir(parents=True)
    body = {
        "version": 1,
        "operation": "init",
        "config_sha256": "0",
        "done": [phase.name for phase in INIT_PHASES[:count]],
    }
    (machine.paths.state / "progress.json").write_text(json.dumps(body))


@pytest.mark.parametrize(
    ("count", "phase"),
    [
        pytest.param(len(INIT_PHASES), NodePhase.JOINED, id="a complete init is a node"),
        pytest.param(3, NodePhase.JOINING, id="an init that stopped is on its way"),
    ],
)
def test_a_control_plane_is_known_by_init(locked, journal, programs, count, phase):
    init_done(locked, count)
    programs.active = True
    assert read_status(locked, journal).state.phase is phase


def test_a_control_plane_that_stayed_closed_says_where_to_look(machine, journal):
    init_done(machine, len(INIT_PHASES))
    assert "attested-unlock" in read_status(machine, journal).to_do


def test_results_are_plain_values(machine, journal):
    assert json.loads(json.dumps(read_status(machine, journal).as_result()))["phase"] == "Fresh"
