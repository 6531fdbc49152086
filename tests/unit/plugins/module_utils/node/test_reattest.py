# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is recorded of a push, and what the status of the node says when its cluster refused the evidence."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.node import reattest
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.run_record import REATTEST, RunRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.node.status import read_status
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

AWAY = TransportError("expected a service, found none", reason=Reason.PEER_UNREACHABLE)
REFUSED = TransportError("expected evidence to be taken, got no", reason=Reason.EVIDENCE_REFUSED)


@pytest.fixture
def record(node, clock):
    return RunRecord(REATTEST, node.paths.lock_marker.parent, clock=clock)


@pytest.fixture
def journal(tmp_path, clock):
    made = NodeJournal(tmp_path / "node.json", clock=clock)
    made.enter(NodePhase.JOINED)
    return made


@pytest.fixture
def node(locked, programs):
    """A node that runs: locked, its kubelet active."""
    programs.active = True
    return locked


def fail(record, error):
    with pytest.raises(AttestedError), record.kept():
        raise error


def called(node, journal):
    """Return whether a person is called, and by which code."""
    status = read_status(node, journal)
    return status.needs_person, status.state.reason


@pytest.fixture
def pushed(monkeypatch, record, clock):
    """Run the program; its pushes are answered in turn, the last answer again and again."""

    def run(*answers):
        left = list(answers)

        def push(_path):
            found = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(found, TransportError):
                raise found
            return found

        monkeypatch.setattr(reattest, "push", push)
        monkeypatch.setattr(reattest, "SystemClock", lambda: clock)
        monkeypatch.setattr(reattest, "RunRecord", lambda _name, clock: record)
        return reattest.main([])

    return run


def test_evidence_that_is_accepted_at_the_second_try_is_recorded_as_good(pushed, record, clock):
    assert pushed(AWAY, ("cp-1:9090", clock.now())) == 0
    found = record.load()
    assert (found.good_at is None, found.failed_at, found.reason) == (False, None, "")


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        pytest.param([REFUSED], "EVIDENCE_REFUSED", id="refused each time"),
        pytest.param([AWAY, REFUSED], "EVIDENCE_REFUSED", id="away, then refused"),
        pytest.param([AWAY], "PEER_UNREACHABLE", id="away all the time"),
    ],
)
def test_the_last_error_is_recorded(pushed, record, capsys, answers, reason):
    assert pushed(*answers) == 1
    assert record.load().reason == reason
    assert reason in capsys.readouterr().err


def test_a_refusal_and_then_success_is_good(pushed, node, journal, clock):
    assert pushed(REFUSED, ("cp-1:9090", clock.now())) == 0
    assert called(node, journal) == (False, None)


def test_a_refusal_calls_a_person_and_says_what_to_do(node, journal, record):
    assert called(node, journal) == (False, None)
    fail(record, REFUSED)
    status = read_status(node, journal).as_result()
    assert (status["needs_person"], status["reason"]) == (True, "EVIDENCE_REFUSED")
    assert status["message"] == "at 2026-11-21T12:00:00+00:00: expected evidence to be taken, got no"
    assert status["to_do"] == Reason.EVIDENCE_REFUSED.value.hint
    assert status["phase"] == "Joined"


def test_good_evidence_ends_it(node, journal, record):
    fail(record, REFUSED)
    with record.kept():
        pass
    assert called(node, journal) == (False, None)


def test_an_unreachable_cluster_is_no_refusal(node, journal, record):
    fail(record, AWAY)
    assert called(node, journal) == (False, None)


def test_a_refusal_before_the_machine_left_does_not_count(node, journal, record):
    fail(record, REFUSED)
    journal.remove()
    assert called(node, journal) == (True, None)


def test_a_reason_of_the_journal_goes_before(node, journal, record):
    fail(record, REFUSED)
    journal.fail(TransportError("expected x", reason=Reason.TICKET_REFUSED))
    assert called(node, journal) == (True, "TICKET_REFUSED")
