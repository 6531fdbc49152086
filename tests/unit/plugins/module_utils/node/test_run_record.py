# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a command succeeded last, and why it failed since."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.node import control_plane_renewal as control_plane
from ansible_collections.attested.kubernetes.plugins.module_utils.node import (
    disk_health,
    etcd_snapshot,
    reattest,
    renew,
    run_record,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.agent import COMMANDS as PROGRAMS
from ansible_collections.attested.kubernetes.plugins.module_utils.node.run_record import (
    COMMANDS,
    Run,
    RunRecord,
    file_name,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

AWAY = TransportError("expected a service, found none", reason=Reason.PEER_UNREACHABLE)


@pytest.fixture
def record(tmp_path, clock):
    return RunRecord("renew", tmp_path, clock=clock)


def fail(record):
    with pytest.raises(AttestedError), record.kept():
        raise AWAY


def test_nothing_is_known_before_the_first_run(record):
    assert record.load() == Run()


def test_a_failure_keeps_the_last_success(record, clock):
    with record.kept():
        pass
    good_at = clock.now()
    clock.sleep(60)
    fail(record)
    assert record.load() == Run(good_at=good_at, failed_at=clock.now(), reason="PEER_UNREACHABLE", message=AWAY.message)


def test_a_long_message_is_cut(record):
    with pytest.raises(AttestedError), record.kept():
        raise TransportError("x" * 100_000, reason=Reason.EVIDENCE_REFUSED)
    assert len(record.load().message) == 2000


def test_a_success_forgets_the_failure(record, clock):
    fail(record)
    with record.kept():
        pass
    assert record.load() == Run(good_at=clock.now())


def test_a_record_that_cannot_be_written_hinders_nothing(tmp_path, clock):
    record = RunRecord("renew", tmp_path / "absent", clock=clock)
    with record.kept():
        pass
    fail(record)
    assert record.load() == Run()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("no json", id="something else"),
        pytest.param("{}", id="another object"),
        pytest.param('{"version": 2}', id="another version"),
        pytest.param('{"version": 1, "good_at": "soon", "failed_at": null, "reason": ""}', id="a time that is none"),
        pytest.param("[]", id="a list"),
    ],
)
def test_a_record_that_is_not_ours_counts_for_nothing(record, tmp_path, content):
    (tmp_path / file_name("renew")).write_text(content)
    assert record.load() == Run()


@pytest.mark.parametrize(
    ("command", "program", "words"),
    [
        pytest.param("backup", etcd_snapshot, ["--recipient=age1"], id="backup"),
        pytest.param("disk-health", disk_health, [], id="disk-health"),
        pytest.param("reattest", reattest, [], id="reattest"),
        pytest.param("renew", renew, [], id="renew"),
        pytest.param("renew-control-plane", control_plane, [], id="renew-control-plane"),
    ],
)
def test_each_program_keeps_why_it_failed(monkeypatch, tmp_path, command, program, words):
    """None of them has the configuration that it needs here."""
    monkeypatch.setattr(program, "RunRecord", lambda name, clock: RunRecord(name, tmp_path, clock=clock))
    monkeypatch.setattr(program, "RenewalRecord", _Deaf, raising=False)
    assert program.main([*words, f"--config={tmp_path}/node.yml"]) == 1
    assert [path.name for path in tmp_path.glob("*.json")] == [file_name(command)]
    assert "FILE_UNUSABLE" in (tmp_path / file_name(command)).read_text()


def test_a_check_of_a_control_planes_certificates_is_no_renewal(monkeypatch, tmp_path):
    monkeypatch.setattr(control_plane, "RunRecord", lambda name, clock: RunRecord(name, tmp_path, clock=clock))
    assert control_plane.main(["--check", f"--config={tmp_path}/node.yml"]) == 1
    assert list(tmp_path.iterdir()) == []


def test_each_command_is_one_of_the_agent_and_has_its_own_file():
    assert set(COMMANDS) <= set(PROGRAMS)
    assert len({file_name(command) for command in COMMANDS}) == len(COMMANDS)
    assert str(run_record.DIRECTORY) == "/run/attested"


class _Deaf:
    """A record that keeps nothing."""

    def __init__(self, *_unused, **_more):
        pass

    def __getattr__(self, _name):
        return lambda *_unused, **_more: None
