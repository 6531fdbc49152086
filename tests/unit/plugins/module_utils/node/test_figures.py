# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node shows of itself to node_exporter."""

from __future__ import annotations

import http.server
import json
import os
import stat
import threading
from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_table import CERTIFICATES
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential, place
from ansible_collections.attested.kubernetes.plugins.module_utils.node import figures as figures_module
from ansible_collections.attested.kubernetes.plugins.module_utils.node.figures import (
    UNITS,
    NodeFigures,
    loopback_page,
    page_figures,
    write_figures,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.run_record import RunRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.pki import NOW, Pki
from prometheus_client.parser import text_string_to_metric_families

AWAY = SystemFault("expected a page, got none", reason=Reason.PEER_UNREACHABLE)
PAGE = b"""# HELP attested_join_events_total Lines of the service's log.
# TYPE attested_join_events_total counter
attested_join_events_total{event="call",outcome="refused",reason="PCR_MISMATCH"} 2.0
# HELP attested_key_identities Identities in the cache.
# TYPE attested_key_identities gauge
attested_key_identities 3.0
"""


class Systemd:
    """systemctl with an answer of its own for ``show``; everything else goes to the other programs."""

    def __init__(self, programs):
        self._programs = programs
        self.units = dict.fromkeys(UNITS, ("loaded", "yes", "active"))

    def run(self, argv, **more):
        if (
            tuple(argv[:2]) != ("systemctl", "show")
            or "--property=Id,LoadState,ActiveState,ConditionResult" not in argv
        ):
            return self._programs.run(argv, **more)
        blocks = [
            f"Id={name}\nLoadState={load}\nActiveState={active}\nConditionResult={condition}\n"
            for name in argv[3:]
            for load, condition, active in [self.units[name.removesuffix(".service")]]
        ]
        return CommandResult(argv=tuple(argv), returncode=0, stdout="\n".join(blocks).encode(), stderr=b"")


@pytest.fixture
def systemd(programs):
    return Systemd(programs)


@pytest.fixture
def node(locked, systemd, programs, make_pair, tmp_path):
    """A worker that runs; its kubelet's certificate ends in three days."""
    certificate, key = make_pair("w-1")
    place(KubeletCredential(certificate=certificate, key=key), locked.paths, clock=locked.clock)
    programs.active = True
    NodeJournal(tmp_path / "node.json", clock=locked.clock).enter(NodePhase.JOINED)
    for name in ("reattest", "renew"):
        timer(tmp_path, name)
    return replace(locked, runner=systemd)


def timer(root, name):
    unit = root / f"etc/systemd/system/attested-{name}.timer"
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text("[Timer]\n")


def look(node, page=None):
    return NodeFigures(node, NodeJournal(node.paths.root / "node.json", clock=node.clock), page=page or no_page)


def no_page(_port, _path):
    raise AWAY


def samples(text):
    """Return what Prometheus' own parser reads."""
    return {
        (one.name, *one.labels.values()): one.value
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    }


def join_service(root, *, text="", metrics_port=9092):
    path = root / "etc/attested/join-service.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or json.dumps({"listen_port": 9090, "metrics_port": metrics_port}))


def test_a_good_worker(node):
    found = samples(look(node).node())
    assert found["attested_node_figures_time_seconds",] == NOW.timestamp()
    assert found["attested_node_needs_operator", ""] == 0
    assert found["attested_node_joined",] == 1
    assert found["attested_node_control_plane",] == 0
    assert found["attested_node_certificate_end_time_seconds", "kubelet"] == NOW.timestamp() + 3 * 86400
    assert {name[1]: value for name, value in found.items() if name[0] == "attested_node_unit_active"} == dict.fromkeys(
        UNITS, 1
    )
    assert not any(value for name, value in found.items() if name[0] == "attested_node_figures_unreadable")
    assert not [name for name in found if name[0] == "attested_node_service_ready"]


def test_last_success_and_failure_of_the_timers_that_are_there(node, clock, tmp_path):
    record = RunRecord("renew", tmp_path / "run/attested", clock=clock)
    with record.kept():
        pass
    clock.sleep(60)
    with pytest.raises(TransportError), record.kept():
        raise TransportError("no", reason=Reason.EVIDENCE_REFUSED)
    found = samples(look(node).node())
    assert {name: value for name, value in found.items() if "_last_" in name[0]} == {
        ("attested_node_last_success_time_seconds", "reattest"): 0,
        ("attested_node_last_success_time_seconds", "renew"): NOW.timestamp(),
        ("attested_node_last_failure_time_seconds", "renew", "EVIDENCE_REFUSED"): NOW.timestamp() + 60,
    }


def test_a_reason_that_is_none_of_ours_makes_no_series(node, tmp_path):
    body = {"version": 1, "good_at": None, "failed_at": NOW.isoformat(), "reason": 'x"} 1\nmade_up 1'}
    (tmp_path / "run/attested/last-renew.json").write_text(json.dumps(body))
    found = samples(look(node).node())
    assert found["attested_node_last_failure_time_seconds", "renew", "other"] == NOW.timestamp()


def test_a_backup_outlives_the_boot(node, clock, tmp_path):
    timer(tmp_path, "backup")
    name = ("attested_node_last_success_time_seconds", "backup")
    assert samples(look(node).node())[name] == 0
    kept = tmp_path / "var/lib/attested/backups/etcd-20261121T030000Z.age"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"age")
    os.utime(kept, (1000, 1000))
    assert samples(look(node).node())[name] == 1000
    with RunRecord("backup", tmp_path / "run/attested", clock=clock).kept():
        pass
    assert samples(look(node).node())[name] == NOW.timestamp()


def test_a_control_plane_shows_each_certificate_and_ca(node, tmp_path):
    Pki(tmp_path)
    found = samples(look(node).node())
    ends = {name[1] for name in found if name[0] == "attested_node_certificate_end_time_seconds"}
    assert ends == {"kubelet", "ca", "etcd-ca", "front-proxy-ca", *(one.name for one in CERTIFICATES)}


def test_the_certificate_that_a_kubelet_serves_with(node, make_pair):
    certificate, _key = make_pair("w-1", days=9)
    node.paths.kubelet_credential.with_name("kubelet-server-current.pem").write_bytes(certificate)
    found = samples(look(node).node())
    assert found["attested_node_certificate_end_time_seconds", "kubelet-serving"] == NOW.timestamp() + 9 * 86400


@pytest.mark.parametrize(
    ("state", "value"),
    [
        pytest.param(("loaded", "yes", "active"), 1, id="runs"),
        pytest.param(("loaded", "yes", "activating"), 0, id="is started again and again"),
        pytest.param(("loaded", "yes", "failed"), 0, id="failed"),
        pytest.param(("loaded", "no", "inactive"), None, id="nobody waits for it"),
        pytest.param(("not-found", "no", "inactive"), None, id="is not there"),
    ],
)
def test_a_unit(node, systemd, state, value):
    systemd.units["attested-key-service"] = state
    assert samples(look(node).node()).get(("attested_node_unit_active", "attested-key-service")) == value


def test_a_node_that_needs_a_person_says_why(node, tmp_path, clock):
    NodeJournal(tmp_path / "node.json", clock=clock).fail(SystemFault("no", reason=Reason.KUBELET_NOT_RUNNING))
    assert samples(look(node).node())["attested_node_needs_operator", "KUBELET_NOT_RUNNING"] == 1


@pytest.mark.parametrize(
    ("part", "break_it"),
    [
        pytest.param("status", lambda root: (root / "node.json").write_text("{"), id="a journal that is none"),
        pytest.param(
            "certificates",
            lambda root: (root / "var/lib/kubelet/pki/kubelet-server-current.pem").write_text("no PEM"),
            id="a certificate that is none",
        ),
        pytest.param("services", lambda root: join_service(root, text="{"), id="a configuration that is none"),
    ],
)
def test_what_cannot_be_told_hides_nothing_else(node, tmp_path, part, break_it):
    break_it(tmp_path)
    figures = look(node)
    found = samples(figures.node())
    assert {name[1]: value for name, value in found.items() if name[0] == "attested_node_figures_unreadable"} == {
        name: float(name == part) for name in ("certificates", "runs", "services", "status", "units")
    }
    assert set(figures.unreadable) == {part}
    assert ("attested_node_last_success_time_seconds", "renew") in found


@pytest.mark.parametrize(
    ("pages", "ready"),
    [
        pytest.param({"/readyz": (200, b"ok"), "/metrics": (200, PAGE)}, (1, 1), id="both work"),
        pytest.param({"/readyz": (503, b"no"), "/metrics": (200, PAGE)}, (0, 1), id="no certificate yet"),
        pytest.param(
            {"/readyz": (200, b"ok"), "/metrics": (200, b"# the key service does not answer\n")},
            (1, 0),
            id="the key service is away",
        ),
        pytest.param({}, (0, 0), id="nobody answers"),
    ],
)
def test_the_services_of_a_control_plane(node, tmp_path, pages, ready):
    join_service(tmp_path)
    asked = []

    def page(port, path):
        asked.append((port, path))
        if path not in pages:
            raise AWAY
        return pages[path]

    figures = look(node, page)
    found = samples(figures.node())
    assert tuple(found["attested_node_service_ready", name] for name in ("join", "key")) == ready
    assert (figures.services or b"") == (pages["/metrics"][1] if ready[1] else b"")
    assert asked.count((9092, "/metrics")) == 1


def test_a_join_service_without_a_page_is_not_asked(node, tmp_path):
    join_service(tmp_path, metrics_port=0)
    figures = look(node, lambda *_words: pytest.fail("asked"))
    assert figures.services is None
    assert not [name for name in samples(figures.node()) if name[0] == "attested_node_service_ready"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"attested_node_joined 1", id="a figure of the node"),
        pytest.param(b"node_load1 0", id="a figure of another program"),
        pytest.param(b"# TYPE node_load1 gauge", id="what another figure is"),
        pytest.param(b'attested_join_calls{a="\xff"} 1', id="other bytes"),
        pytest.param(b'attested_join_calls{a="b c"} 1', id="a word that is none of ours"),
        pytest.param(b"attested_join_calls 1 1700000000000", id="a time, at which node_exporter drops the file"),
        pytest.param(b"attested_join_calls 1\r", id="another end of a line"),
    ],
)
def test_a_page_shows_figures_of_its_services_alone(line):
    assert page_figures(PAGE + line + b"\n") == PAGE
    assert page_figures(line) == b""


def test_a_page_without_end_is_cut():
    assert page_figures(b"attested_join_calls 1\n" * 6000).count(b"\n") == 5000


def test_the_files_are_for_everybody_and_go_where_there_is_nothing_to_say(node, tmp_path):
    join_service(tmp_path)
    target = tmp_path / "figures"
    target.mkdir()
    write_figures(look(node, lambda *_words: (200, PAGE)), target)
    assert (target / "services.prom").read_bytes() == PAGE
    assert {stat.S_IMODE(path.stat().st_mode) for path in target.iterdir()} == {0o644}
    write_figures(look(node), target)
    assert [path.name for path in target.iterdir()] == ["node.prom"]
    join_service(tmp_path, text="{")
    write_figures(look(node, lambda *_words: (200, PAGE)), target)
    assert [path.name for path in target.iterdir()] == ["node.prom"]


def test_no_figure_holds_what_a_credential_holds(node):
    text = look(node).node()
    assert b"BEGIN" not in text
    assert node.paths.kubelet_credential.read_bytes()[100:140] not in text


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
        self.wfile.write(b"x" * (1 << 21))

    def log_message(self, *_unused):
        pass


def test_a_page_is_read_from_loopback_up_to_a_bound():
    server = http.server.HTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    try:
        status, text = loopback_page(port, "/readyz")
        assert (status, len(text)) == (200, 1 << 20)
        assert loopback_page(port, "/other")[0] == 404
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(SystemFault) as caught:
        loopback_page(port, "/readyz")
    assert caught.value.code == "PEER_UNREACHABLE"


def test_the_program_writes_and_says_what_it_could_not_tell(node, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures_module, "Machine", lambda **_given: node)
    monkeypatch.setattr(figures_module, "NodeJournal", lambda clock: NodeJournal(tmp_path / "node.json", clock=clock))
    (tmp_path / "node.json").write_text("{")
    (tmp_path / "figures").mkdir()
    assert figures_module.main([f"--directory={tmp_path}/figures"]) == 0
    assert "no status: NODE_JOURNAL_MALFORMED" in capsys.readouterr().err
    assert (tmp_path / "figures/node.prom").exists()
    assert figures_module.main([f"--directory={tmp_path}/absent"]) == 1
    assert "FILE_UNUSABLE" in capsys.readouterr().err
