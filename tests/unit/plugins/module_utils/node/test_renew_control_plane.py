# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program and the module that renew a control plane's own certificates, and what the status says of them."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError, KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_renewal import plan, read_leaves
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_table import CERTIFICATES
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential, place
from ansible_collections.attested.kubernetes.plugins.module_utils.node import control_plane_renewal
from ansible_collections.attested.kubernetes.plugins.module_utils.node.control_plane_renewal import (
    RenewedControlPlane,
    result_of,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.control_plane_turns import local_api
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.renewal_record import RenewalRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.node.status import NO_CONTROL_PLANE, read_status
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.kubeadm.certificates.conftest import Pki

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
ENDS = "2027-08-13T12:00:00+00:00"
BY_NAME = {one.name: one for one in CERTIFICATES}
AWAY = ApiError("could not get the lease", reason=Reason.API_UNAVAILABLE)
UNDONE = KubeadmError("etcd is not well; it runs with the old files", reason=Reason.CONTROL_PLANE_RENEWAL_UNDONE)


@pytest.fixture
def pki(tmp_path, locked):
    del locked
    return Pki(tmp_path)


@pytest.fixture
def record(tmp_path, clock):
    return RenewalRecord(tmp_path / "run/attested/control-plane-renewal", clock=clock)


@pytest.fixture
def status(locked, make_pair, programs, tmp_path, pki):
    """The status of a control plane that runs."""
    del pki
    certificate, key = make_pair("cp-1")
    place(KubeletCredential(certificate=certificate, key=key), locked.paths, clock=locked.clock)
    programs.active = True
    journal = NodeJournal(tmp_path / "node.json", clock=locked.clock)
    journal.enter(NodePhase.JOINED)
    return lambda: read_status(locked, journal)


def found(machine, *, at_once=False):
    leaves = read_leaves(machine.paths)
    return RenewedControlPlane(plan=plan(leaves, now=NOW, at_once=at_once), steps=(), leaves=leaves)


# ---- result


def test_nothing_due_changes_nothing(pki, locked):
    del pki
    result = result_of(found(locked), check_mode=False)
    assert (result.changed, result.values["renewed"], result.diff.after) == (False, [], "")
    assert result.values["expires"] == ENDS
    assert [one["name"] for one in result.values["certificates"]] == list(BY_NAME)
    assert {one["renews"] for one in result.values["certificates"]} == {"2027-06-14T12:00:00+00:00"}


def test_check_mode_names_what_is_due(pki, locked):
    pki.make(BY_NAME["apiserver"], begins=NOW - 330 * DAY, ends=NOW + 35 * DAY)
    result = result_of(found(locked), check_mode=True)
    assert (result.changed, result.values["renewed"], result.diff.after) == (True, ["apiserver"], "renew apiserver\n")


def test_a_ca_that_ends_is_a_warning_in_check_mode_and_else_a_failure(pki, locked):
    pki.make_authority(BY_NAME["etcd-peer"].authority, ends=NOW + 50 * DAY)
    done = found(locked)
    assert result_of(done, check_mode=True).warnings == ("CA etcd/ca.crt ends at 2027-01-10T12:00:00Z",)
    with pytest.raises(KubeadmError) as caught:
        result_of(done, check_mode=False)
    assert caught.value.code == "CONTROL_PLANE_CA_ENDS"


def test_the_module_hands_its_options_on(monkeypatch, pki, locked):
    del pki
    asked = []

    def renew(config, *, at_once, check):
        asked.append((config, at_once, check))
        return found(locked)

    monkeypatch.setattr(control_plane_renewal, "renew_control_plane", renew)
    params = {"node_config": "/n", "at_once": True}
    assert control_plane_renewal.run_control_plane(params, True).changed is False
    assert asked == [("/n", True, True)]


@pytest.mark.parametrize(
    ("host", "server"),
    [
        pytest.param("10.0.0.11", "https://10.0.0.11:6443", id="IPv4"),
        pytest.param("fd00::11", "https://[fd00::11]:6443", id="IPv6"),
    ],
)
def test_the_api_server_of_this_machine_is_asked(monkeypatch, locked, host, server):
    probe = {"httpGet": {"scheme": "HTTPS", "host": host, "port": 6443, "path": "/readyz"}}
    pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"readinessProbe": probe}]}}
    path = locked.paths.kubernetes / "manifests/kube-apiserver.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(pod))
    module = "ansible_collections.attested.kubernetes.plugins.module_utils.node.control_plane_turns"
    monkeypatch.setattr(f"{module}.ApiGateway", lambda **given: given)
    assert local_api(locked, None)["server"] == server


# ---- program


def run_program(monkeypatch, tmp_path, renew, *words):
    monkeypatch.setattr(control_plane_renewal, "renew_control_plane", renew)
    monkeypatch.setattr(
        control_plane_renewal, "CONTROL_PLANE_DIRECTORY", tmp_path / "run/attested/control-plane-renewal"
    )
    return control_plane_renewal.main(list(words))


def test_the_program_shows_each_certificate(monkeypatch, tmp_path, capsys, pki, locked):
    pki.make(BY_NAME["apiserver"], begins=NOW - 330 * DAY, ends=NOW + 35 * DAY)
    asked = {}

    def renew(config, **given):
        asked.update(given, config=config)
        given["log"]("begins")
        return found(locked)

    assert run_program(monkeypatch, tmp_path, renew, "--check", "--config=/c") == 0
    assert (asked["config"], asked["at_once"], asked["check"]) == ("/c", False, True)
    said = capsys.readouterr()
    assert said.err == "attested-agent renew-control-plane: begins\n"
    lines = said.out.splitlines()
    assert len(lines) == len(CERTIFICATES)
    assert lines[1].split() == ["apiserver", "until", "2026-12-26T12:00:00+00:00", "would", "be", "renewed"]
    assert lines[0].split() == ["admin.conf", "until", ENDS, "due", "from", "2027-06-14T12:00:00+00:00"]
    assert run_program(monkeypatch, tmp_path, renew, "--json") == 0
    assert json.loads(capsys.readouterr().out)["renewed"] == ["apiserver"]


@pytest.mark.parametrize(
    ("error", "passes"),
    [pytest.param(AWAY, True, id="the API is away"), pytest.param(UNDONE, False, id="a component was not well")],
)
def test_a_renewal_that_fails_is_kept_until_one_succeeds(monkeypatch, tmp_path, capsys, record, error, passes):
    def fail(_config, **_given):
        raise error

    assert run_program(monkeypatch, tmp_path, fail) == 1
    assert f"{error.code}: {error.message}" in capsys.readouterr().err
    kept = record.load()
    assert (kept.reason, kept.passes) == (error.code, passes)
    assert kept.next_try - kept.at == DAY


def test_check_mode_keeps_and_forgets_nothing(monkeypatch, tmp_path, record, pki, locked):
    del pki
    record.failed(UNDONE, next_seconds=1, passes=False)
    assert run_program(monkeypatch, tmp_path, lambda _config, **_given: found(locked), "--check") == 0
    assert record.load().reason == "CONTROL_PLANE_RENEWAL_UNDONE"
    assert run_program(monkeypatch, tmp_path, lambda _config, **_given: found(locked)) == 0
    assert record.load() is None


@pytest.mark.parametrize(
    ("words", "given"),
    [
        pytest.param([], [], id="what is due"),
        pytest.param(["--now", "--check", "--json"], ["--now", "--check", "--json"], id="every option"),
    ],
)
def test_the_command_runs_the_program_beside_it(monkeypatch, capsys, words, given):
    calls = []

    def run(_self, argv, *, timeout_seconds, check):
        calls.append((argv[1:], timeout_seconds, check))
        assert argv[0].endswith("/attested-agent")
        return CommandResult(argv=tuple(argv), returncode=1, stdout=b"out\n", stderr=b"said\n")

    monkeypatch.setattr(command.SystemRunner, "run", run)
    assert command.main(["renew-control-plane", "--config=/c", *words]) == 1
    assert calls == [(["renew-control-plane", "--config=/c", *given], 3600, False)]
    said = capsys.readouterr()
    assert (said.out, said.err) == ("out\n", "said\n")


# ---- status


def test_a_control_plane_says_which_certificate_ends_first(status, pki):
    pki.make(BY_NAME["etcd-peer"], begins=NOW - 300 * DAY, ends=NOW + 15 * DAY)
    shown = status().as_result()
    assert (shown["control_plane_expires"], shown["control_plane_first"]) == ("2026-12-06T12:00:00+00:00", "etcd-peer")
    assert (shown["needs_person"], shown["to_do"]) == (False, "Nothing.")


def test_a_worker_says_nothing_of_them(status, pki):
    (pki.root / "etc/kubernetes/pki/ca.key").unlink()
    shown = status().as_result()
    assert (shown["control_plane_expires"], shown["control_plane_first"]) == (None, None)


def test_one_that_is_half_made_says_nothing_either(status, pki):
    (pki.root / "etc/kubernetes/pki/apiserver.crt").unlink()
    assert status().control_plane.expires is None


def test_two_weeks_before_the_end_a_person_is_called(status, pki):
    pki.make(BY_NAME["etcd-peer"], begins=NOW - 300 * DAY, ends=NOW + 14 * DAY)
    shown = status()
    assert shown.needs_person
    assert shown.to_do == (
        "Run attested renew-control-plane: certificate etcd-peer of this control plane ends at 2026-12-05T12:00:00Z."
    )


@pytest.mark.parametrize(
    ("error", "passes", "left", "is_called"),
    [
        pytest.param(UNDONE, False, 50, True, id="what does not pass"),
        pytest.param(AWAY, True, 50, False, id="what passes, with time left"),
        pytest.param(AWAY, True, 10, True, id="what passes, with none"),
    ],
)
def test_a_renewal_that_failed_calls_a_person(status, pki, record, error, passes, left, is_called):
    pki.make(BY_NAME["scheduler.conf"], begins=NOW - 300 * DAY, ends=NOW + left * DAY)
    record.failed(error, next_seconds=86400, passes=passes)
    shown = status()
    assert shown.needs_person is is_called
    assert (f"{error.code}: {error.hint}" == shown.to_do) is is_called


def test_another_trouble_comes_first(status, pki, programs):
    pki.make(BY_NAME["scheduler.conf"], begins=NOW - 300 * DAY, ends=NOW + DAY)
    programs.active = False
    assert status().to_do == Reason.KUBELET_NOT_RUNNING.value.hint


def test_status_prints_it(capsys, monkeypatch, status):
    monkeypatch.setattr(command.os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        command, "load_node_config", lambda _path: type("C", (), {"name": "cp-1", "cluster_name": "lab"})
    )
    monkeypatch.setattr(command, "read_status", lambda _machine, _journal: status())
    assert command.main(["status"]) == 0
    assert f"control plane certificates until {ENDS} (admin.conf ends first)" in " ".join(
        capsys.readouterr().out.split()
    )
    worker = replace(status(), control_plane=NO_CONTROL_PLANE)
    monkeypatch.setattr(command, "read_status", lambda _machine, _journal: worker)
    assert command.main(["status"]) == 0
    assert "control plane" not in capsys.readouterr().out
