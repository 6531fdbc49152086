# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node whose evidence its cluster refused says so, although everything on it looks as it did."""

from __future__ import annotations

import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.push_record import PATH, Pushed, PushRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.node.status import read_status
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

REFUSED = TransportError("expected evidence to be taken, got no", reason=Reason.EVIDENCE_REFUSED)
AWAY = TransportError("expected a service, found none", reason=Reason.PEER_UNREACHABLE)


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


@pytest.fixture
def record(node, clock):
    return PushRecord(node.paths.lock_marker.with_name(PATH.name), clock=clock)


def called(node, journal):
    """Return whether a person is called, and by which code."""
    status = read_status(node, journal)
    return status.needs_person, status.state.reason


def test_a_refusal_calls_a_person_and_says_what_to_do(node, journal, record):
    assert called(node, journal) == (False, None)
    record.failed(REFUSED)
    status = read_status(node, journal).as_result()
    assert (status["needs_person"], status["reason"]) == (True, "EVIDENCE_REFUSED")
    assert status["message"] == "at 2026-11-21T12:00:00+00:00: expected evidence to be taken, got no"
    assert status["to_do"] == Reason.EVIDENCE_REFUSED.value.hint
    assert status["phase"] == "Joined"


def test_good_evidence_ends_it(node, journal, record):
    record.failed(REFUSED)
    record.good()
    assert called(node, journal) == (False, None)


def test_a_cluster_out_of_reach_is_no_refusal(node, journal, record):
    record.failed(AWAY)
    assert called(node, journal) == (False, None)


def test_what_a_machine_was_told_before_it_left_counts_no_more(node, journal, record):
    record.failed(REFUSED)
    journal.remove()
    assert called(node, journal) == (True, None)


def test_a_reason_of_the_journal_goes_before(node, journal, record):
    record.failed(REFUSED)
    journal.fail(TransportError("expected x", reason=Reason.TICKET_REFUSED))
    assert called(node, journal) == (True, "TICKET_REFUSED")


def test_what_was_kept_comes_back(record, clock):
    assert record.load() is None
    record.failed(REFUSED)
    assert record.load() == Pushed(at=clock.now(), reason="EVIDENCE_REFUSED", message=REFUSED.message)


def test_a_long_story_is_cut(record):
    record.failed(TransportError("x" * 100_000, reason=Reason.EVIDENCE_REFUSED))
    assert len(record.load().message) == 2000


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"version": 2}, id="another version"),
        pytest.param({"at": "yesterday"}, id="a time that is none"),
        pytest.param({"at": 7}, id="a number for a time"),
    ],
)
def test_a_file_that_is_not_ours_says_nothing(node, record, change):
    record.good()
    path = node.paths.lock_marker.with_name(PATH.name)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert record.load() is None
    path.write_text("no json")
    assert record.load() is None
