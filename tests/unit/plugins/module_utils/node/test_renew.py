# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of a renewal that failed, and what a node says of it."""

from __future__ import annotations

import fcntl
import json
import os

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    AttestedError,
    KubeadmError,
    SystemFault,
    TransportError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential, place
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.renew import (
    alone,
    does_pass,
    main,
    renew_and_keep,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.renewal_record import RenewalRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.node.run_record import REATTEST, RunRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.node.status import read_status
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

AWAY = TransportError("nobody there", reason=Reason.PEER_UNREACHABLE)
REFUSED = TransportError("expected a ticket, got 'attestation refused'", reason=Reason.TICKET_REFUSED)
DAY = 24 * 3600


@pytest.fixture
def record(tmp_path, clock):
    return RenewalRecord(tmp_path / "run/attested/renewal", clock=clock)


@pytest.fixture
def node(locked, make_pair, programs, tmp_path):
    """A node that runs; its certificate ends in three days."""
    certificate, key = make_pair("w-1")
    place(KubeletCredential(certificate=certificate, key=key), locked.paths, clock=locked.clock)
    programs.active = True
    journal = NodeJournal(tmp_path / "node.json", clock=locked.clock)
    journal.enter(NodePhase.JOINED)
    return lambda: read_status(locked, journal)


def fail(record, error, seconds=3600):
    def ask():
        raise error

    with pytest.raises(AttestedError):
        renew_and_keep(ask, record, interval_seconds=seconds)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        pytest.param(AWAY, True, id="nobody is there"),
        pytest.param(TransportError("x", reason=Reason.JOIN_SERVICE_BUSY), True, id="a busy service"),
        pytest.param(KubeadmError("x", reason=Reason.API_UNREACHABLE), True, id="an API that is away"),
        pytest.param(REFUSED, False, id="a refusal"),
        pytest.param(TransportError("x", reason=Reason.CLOCK_SKEW), False, id="a clock"),
        pytest.param(SystemFault("x", reason=Reason.FILE_UNUSABLE), False, id="a fault of this machine"),
        pytest.param(KubeadmError("x", reason=Reason.KUBELET_CREDENTIAL_REFUSED), False, id="an API that says no"),
    ],
)
def test_what_passes_by_itself(record, error, passes):
    fail(record, error)
    assert (does_pass(error), record.load().passes, record.load().reason) == (passes, passes, error.code)


def test_a_success_forgets_the_failure(record):
    fail(record, AWAY)
    assert renew_and_keep(lambda: "renewed", record, interval_seconds=1) == "renewed"
    assert record.load() is None


def test_a_good_node_says_until_when_and_from_when_on(node, clock):
    status = node().as_result()
    assert (status["needs_person"], status["to_do"]) == (False, "Nothing.")
    assert status["certificate_expires"] == "2026-11-24T12:00:00+00:00"
    assert status["certificate_renews"] == "2026-11-23T12:00:00+00:00"


def test_services_that_are_away_are_told_and_call_nobody_yet(node, record):
    fail(record, AWAY, seconds=600)
    status = node().as_result()
    assert (status["reason"], status["next_try"]) == ("PEER_UNREACHABLE", "2026-11-21T12:10:00+00:00")
    assert "renewal of the kubelet's certificate at 2026-11-21T12:00:00" in status["message"]
    assert status["needs_person"] is False


def test_with_half_a_day_left_somebody_is_called(node, record, clock):
    clock.sleep(3 * DAY - 12 * 3600)
    fail(record, AWAY)
    assert node().needs_person


@pytest.mark.parametrize("error", [REFUSED, KubeadmError("401", reason=Reason.KUBELET_CREDENTIAL_REFUSED)])
def test_who_was_refused_calls_somebody_at_once(node, record, error):
    fail(record, error)
    status = node()
    assert (status.needs_person, status.to_do) == (True, Reason[error.code].value.hint)


def test_refused_evidence_says_more_than_a_refused_renewal(node, record, tmp_path, clock):
    with pytest.raises(TransportError), RunRecord(REATTEST, tmp_path / "run/attested", clock=clock).kept():
        raise TransportError("no", reason=Reason.EVIDENCE_REFUSED)
    fail(record, AWAY)
    assert (node().state.reason, node().needs_person) == ("EVIDENCE_REFUSED", True)


def test_a_certificate_that_ended_says_what_to_run(node, clock):
    clock.sleep(3 * DAY)
    assert "attested renew" in node().to_do


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("no json", id="something else"),
        pytest.param("{}", id="another object"),
        pytest.param('{"version": 2}', id="another version"),
        pytest.param("[]", id="a list"),
    ],
)
def test_a_record_that_is_not_ours_counts_for_nothing(record, tmp_path, content):
    path = tmp_path / "run/attested/renewal/failed.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert record.load() is None


def test_one_renewal_at_a_time(tmp_path):
    """The lock is of the open file, so the kernel frees it with who held it."""
    directory = tmp_path / "renewal"

    def held_by_another():
        with (directory / "lock").open("rb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    with alone(directory):
        assert held_by_another()
    assert not held_by_another()


def test_the_program_says_what_failed(capsys, tmp_path, monkeypatch, clock):
    kept = RenewalRecord(tmp_path / "renewal", clock=clock)
    monkeypatch.setattr(
        "ansible_collections.attested.kubernetes.plugins.module_utils.node.renew.RenewalRecord",
        lambda clock: kept,
    )
    assert main(["--config", str(tmp_path / "node.yml"), "--interval", "60"]) == 1
    assert "FILE_UNUSABLE" in capsys.readouterr().err
    assert kept.load().reason == "FILE_UNUSABLE"


@pytest.mark.parametrize(("words", "given"), [([], []), (["--now"], ["--now"])], ids=["if it is time", "at once"])
def test_the_command_runs_the_timers_program(capsys, monkeypatch, words, given):
    calls = []

    def run(_self, argv, **_options):
        assert argv[0].endswith("/attested-agent")
        calls.append(argv[1:])
        said = b"attested-agent renew: TICKET_REFUSED\n"
        return CommandResult(argv=tuple(argv), returncode=1, stdout=b"", stderr=said)

    monkeypatch.setattr(command.SystemRunner, "run", run)
    assert command.main(["renew", "--config=/c", *words]) == 1
    assert calls == [["renew", "--config=/c", *given]]
    assert capsys.readouterr().err == "attested-agent renew: TICKET_REFUSED\n"


def test_status_prints_from_when_on(capsys, monkeypatch, node):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        command, "load_node_config", lambda _path: type("C", (), {"name": "w-1", "cluster_name": "lab"})
    )
    monkeypatch.setattr(command, "read_status", lambda _machine, _journal: node())
    assert command.main(["status"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "until 2026-11-24T12:00:00+00:00, renewed by itself from 2026-11-23T12:00:00+00:00 on" in shown
    assert command.main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate_renews"] == "2026-11-23T12:00:00+00:00"
