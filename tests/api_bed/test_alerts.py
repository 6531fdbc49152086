# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Alerts in a real Prometheus, which reads our services by the file of the node and a real node_exporter."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine as Host
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.node.figures import NodeFigures, write_figures
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.run_record import RunRecord
from ansible_collections.attested.kubernetes.tests.support.prometheus_bed import (
    ALERTS,
    PrometheusBed,
    hastened,
    wait_until,
    why_not,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

pytestmark = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))

CONTROL_PLANE = {"AttestedJoinServiceDown", "AttestedKeyServiceDown", "AttestedNoQuorum"}


class Watched:
    """A control plane in a directory whose figures Prometheus reads."""

    def __init__(self, root: Path, prometheus: PrometheusBed) -> None:
        self.root = root
        self.prometheus = prometheus
        self.clock = SystemClock()

    def write(self) -> None:
        """Do what the timer does once a minute."""
        host = Host(runner=SystemRunner(), clock=self.clock, paths=KubernetesPaths(root=self.root))
        write_figures(
            NodeFigures(host, NodeJournal(self.root / "node.json", clock=self.clock)), self.prometheus.figures
        )

    def wait(self, holds: Callable[[], bool]) -> None:
        wait_until(holds, step=self.write)

    def fires(self, *names: str) -> bool:
        return set(names) <= self.prometheus.firing().keys()

    def is_well(self) -> bool:
        """Whether Prometheus knows the node, and no alert of a control plane fires."""
        known = self.prometheus.value('attested_node_service_ready{service="join"}') == 1
        return known and not CONTROL_PLANE & self.prometheus.firing().keys()


@pytest.fixture
def watched(bed: ServiceBed, tmp_path: Path) -> Iterator[Watched]:
    config = tmp_path / "root/etc/attested/join-service.yml"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"metrics_port": bed.metrics_port}))
    (tmp_path / "prometheus").mkdir()
    prometheus = PrometheusBed(tmp_path / "prometheus")
    with prometheus.running(text=hastened(ALERTS.read_text(encoding="utf-8"))):
        made = Watched(tmp_path / "root", prometheus)
        wait_until(prometheus.is_up, step=made.write)
        made.wait(made.is_well)
        yield made


def test_a_join_service_that_ends_fires_an_alert_and_resolves_it(bed: ServiceBed, watched: Watched) -> None:
    bed.kill("join")
    watched.wait(lambda: watched.fires("AttestedJoinServiceDown"))
    told = watched.prometheus.firing()["AttestedJoinServiceDown"]
    assert told["severity"] == "critical"
    assert "systemctl status attested-join-service" in told["description"]
    bed.start_join_service()
    watched.wait(watched.is_well)


def test_a_key_service_that_ends_fires_an_alert_and_resolves_it(bed: ServiceBed, watched: Watched) -> None:
    bed.kill("key")
    watched.wait(lambda: watched.fires("AttestedKeyServiceDown"))
    bed.start_key_service()
    watched.wait(watched.is_well)


def test_an_api_without_its_etcd_fires_an_alert_and_resolves_it(bed: ServiceBed, watched: Watched) -> None:
    """The processes run all the time: only a read by the quorum of etcd tells."""
    etcd = bed.api.processes["etcd"]
    etcd.send_signal(signal.SIGSTOP)
    try:
        watched.wait(lambda: watched.fires("AttestedNoQuorum"))
        assert not watched.fires("AttestedKeyServiceDown")
    finally:
        etcd.send_signal(signal.SIGCONT)
    watched.wait(watched.is_well)


def test_a_stranger_that_is_refused_again_and_again_fires_an_alert(
    bed: ServiceBed, machines: Callable[..., Machine], watched: Watched
) -> None:
    """And however it calls itself, it makes no series of its own."""
    name = "AttestedJoinsRefused"
    before = watched.prometheus.value("count(attested_key_events_total)")
    strangers = (machines(f"stranger{number}", enroll=False) for number in range(1000))

    def ask() -> None:
        assert code_of(next(strangers).ask) == "TICKET_REFUSED"
        watched.write()

    wait_until(lambda: watched.fires(name), step=ask)
    told = watched.prometheus.firing()[name]
    assert told["reason"] == "IDENTITY_UNKNOWN"
    assert "stranger" not in json.dumps(told)
    assert (watched.prometheus.value("count(attested_key_events_total)") or 0) - (before or 0) <= 2
    assert bed.last_refusal()["reason"] == told["reason"]


def test_a_command_that_fails_fires_an_alert_and_its_success_resolves_it(watched: Watched) -> None:
    timer = watched.root / "etc/systemd/system/attested-renew.timer"
    timer.parent.mkdir(parents=True)
    timer.touch()
    NodeJournal(watched.root / "node.json", clock=watched.clock).enter(NodePhase.JOINED)
    record = watched.root / "run/attested"
    record.mkdir(parents=True)
    (record / "last-renew.json").write_text(
        json.dumps(
            {"version": 1, "good_at": None, "failed_at": "2026-11-21T12:00:00+00:00", "reason": "API_UNREACHABLE"}
        )
    )
    watched.wait(lambda: watched.fires("AttestedTimerFailing", "AttestedTimerLate"))
    assert watched.prometheus.firing()["AttestedTimerFailing"]["reason"] == "API_UNREACHABLE"
    with RunRecord("renew", record, clock=watched.clock).kept():
        pass
    watched.wait(lambda: not {"AttestedTimerFailing", "AttestedTimerLate"} & watched.prometheus.firing().keys())
