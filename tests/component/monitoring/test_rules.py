# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each alert by Prometheus' own tool: it does not fire too early, fires, and not on a cluster that is well."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.prometheus_bed import ALERTS, promtool, rules, why_not

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))

NOW = "0+60x5000"
"""A time that is always now: a test begins at 0, and has a sample a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Series that are bad and that are good; the last minute without the alert, and one at which it fires."""

    alert: str
    series: str
    bad: str
    good: str
    quiet: int
    fires: int


CASES = (
    Case(
        alert="NodeNeedsOperator", series='node_needs_operator{reason="X"}', bad="1x20", good="0x20", quiet=9, fires=10
    ),
    Case(
        alert="NodeNotReattested",
        series='node_last_success_time_seconds{command="reattest"}',
        bad="0x400",
        good=NOW,
        quiet=240,
        fires=241,
    ),
    Case(
        alert="NodeEvidenceOverdue",
        series='key_node_attested_time_seconds{node="w-1"}',
        bad="0x400",
        good=NOW,
        quiet=255,
        fires=256,
    ),
    Case(alert="NodesNotAttested", series="key_nodes_not_attested", bad="1x20", good="0x20", quiet=4, fires=5),
    Case(alert="NodeNotReady", series='key_node_ready{node="w-1"}', bad="0x20", good="1x20", quiet=4, fires=5),
    Case(
        alert="TimerFailing",
        series='node_last_failure_time_seconds{command="renew",reason="X"}',
        bad="60x200",
        good="_x200",
        quiet=119,
        fires=120,
    ),
    Case(
        alert="TimerLate",
        series='node_last_success_time_seconds{command="renew"}',
        bad="0x400",
        good=NOW,
        quiet=300,
        fires=301,
    ),
    Case(
        alert="CertificateDue",
        series='node_certificate_end_time_seconds{certificate="kubelet"}',
        bad=f"{12 * 3600}x20",
        good=f"{12 * 3600 + 1200}x20",
        quiet=10,
        fires=11,
    ),
    Case(
        alert="ControlPlaneCertificateDue",
        series='node_certificate_end_time_seconds{certificate="apiserver"}',
        bad=f"{14 * 86400}x100",
        good=f"{15 * 86400}x100",
        quiet=60,
        fires=61,
    ),
    Case(
        alert="AuthorityDue",
        series='node_certificate_end_time_seconds{certificate="etcd-ca"}',
        bad=f"{90 * 86400}x100",
        good=f"{91 * 86400}x100",
        quiet=60,
        fires=61,
    ),
    Case(alert="UnitDown", series='node_unit_active{unit="kubelet"}', bad="0x20", good="1x20", quiet=4, fires=5),
    Case(alert="FiguresOld", series="node_figures_time_seconds", bad="0x30", good=NOW, quiet=15, fires=16),
    Case(
        alert="FiguresUnreadable",
        series='node_figures_unreadable{part="status"}',
        bad="1x30",
        good="0x30",
        quiet=14,
        fires=15,
    ),
    Case(alert="FiguresRefused", series="node_textfile_scrape_error", bad="1x20", good="0x20", quiet=4, fires=5),
    Case(alert="NoFigures", series="node_figures_time_seconds", bad="_x20", good=NOW, quiet=9, fires=10),
    Case(alert="JoinServiceDown", series='node_service_ready{service="join"}', bad="0x9", good="1x9", quiet=1, fires=2),
    Case(alert="KeyServiceDown", series='node_service_ready{service="key"}', bad="0x9", good="1x9", quiet=1, fires=2),
    Case(alert="NoQuorum", series="key_nodes_read_time_seconds", bad="0x20", good=NOW, quiet=5, fires=6),
    Case(
        alert="JoinsRefused",
        series='key_events_total{event="key_release",outcome="refused",reason="PCR_MISMATCH"}',
        bad="0+1x60",
        good="60x60",
        quiet=10,
        fires=40,
    ),
    Case(
        alert="BackupOld",
        series='node_last_success_time_seconds{command="backup"}',
        bad="60x4000",
        good=NOW,
        quiet=2941,
        fires=2942,
    ),
    Case(
        alert="BackupMissing",
        series='node_last_success_time_seconds{command="backup"}',
        bad="0x1700",
        good="60x1700",
        quiet=1559,
        fires=1560,
    ),
    Case(alert="AuditHeadLate", series="key_audit_unsigned_records", bad="251x20", good="250x20", quiet=14, fires=15),
)


def named(series: str, **more: str) -> str:
    """Return the series with its prefix and ``more`` labels."""
    name, brace, labels = series.partition("{")
    full = name if name.startswith("node_textfile") else f"attested_{name}"
    added = ",".join(f'{label}="{value}"' for label, value in more.items())
    return f"{full}{{{added}{',' + labels if brace else '}'}"


def run(directory: Path, series: dict[str, str], wanted: dict[int, int], alert: str) -> None:
    """Let promtool count how often ``alert`` fires at each minute of ``wanted``."""
    expression = f'sum(ALERTS{{alertstate="firing",alertname="Attested{alert}"}}) or vector(0)'
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expression, "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": value}]}
            for minute, value in wanted.items()
        ],
    }
    path = directory / "tests.yml"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    done = promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


JOINED = {named("node_joined", instance="w-1"): "1x5000"}
BESIDE = {
    "NodeNotReattested": JOINED,
    "TimerLate": JOINED,
    "FiguresRefused": {named("node_figures_time_seconds", instance="w-1"): NOW},
}
"""What is there beside the series of a case."""


def test_every_alert_has_a_case() -> None:
    assert [f"Attested{case.alert}" for case in CASES] == [rule["alert"] for rule in rules()]


def test_promtool_finds_no_fault() -> None:
    done = promtool("check", "rules", str(ALERTS))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES, ids=[case.alert for case in CASES])
def test_an_alert(tmp_path: Path, case: Case) -> None:
    name, beside = named(case.series, instance="w-1"), BESIDE.get(case.alert, {})
    run(tmp_path, {name: case.bad, **beside}, {case.quiet: 0, case.fires: 1}, case.alert)
    run(tmp_path, {name: case.good, **beside}, {case.quiet: 0, case.fires: 0}, case.alert)


@pytest.mark.parametrize(
    ("alert", "series"),
    [
        pytest.param(
            "NodeEvidenceOverdue",
            {
                named('key_node_attested_time_seconds{node="w-1"}', instance="cp-1"): "0x400",
                named('key_node_attested_time_seconds{node="w-1"}', instance="cp-2"): NOW,
            },
            id="another control plane got evidence",
        ),
        pytest.param(
            "NodeNotReattested",
            {
                named('node_last_success_time_seconds{command="reattest"}', instance="w-1"): "0x400",
                named("node_joined", instance="w-1"): "0x400",
                named("node_joined", instance="w-2"): "1x400",
            },
            id="a machine that is no node yet",
        ),
        pytest.param(
            "ControlPlaneCertificateDue",
            {named('node_certificate_end_time_seconds{certificate="kubelet"}', instance="w-1"): "259200x400"},
            id="a kubelet's certificate lives for three days",
        ),
        pytest.param(
            "TimerLate",
            {named('node_last_success_time_seconds{command="renew-control-plane"}', instance="cp-1"): "0x400"},
            id="what runs once a day has not run since the boot",
        ),
        pytest.param(
            "JoinsRefused",
            {
                named(
                    'key_events_total{event="key_challenge",outcome="refused",reason="X"}', instance="cp-1"
                ): "0+9x400",
                named('key_events_total{event="key_release",outcome="ok",reason=""}', instance="cp-1"): "0+9x400",
            },
            id="challenges that were refused, tickets that were given",
        ),
        pytest.param(
            "FiguresRefused",
            {'node_textfile_scrape_error{instance="other"}': "1x400"},
            id="a host that is none of ours",
        ),
    ],
)
def test_what_is_no_reason_for_an_alert(tmp_path: Path, alert: str, series: dict[str, str]) -> None:
    run(tmp_path, series, {300: 0, 390: 0}, alert)


def test_a_counter_that_is_new_with_its_first_refusals(tmp_path: Path) -> None:
    """A series that appears with 1 is no increase for Prometheus; ten more are."""
    name = named('key_events_total{event="key_reattest",outcome="refused",reason="X"}', instance="cp-1")
    run(tmp_path, {name: "_x20 1+1x40"}, {29: 0, 45: 1}, "JoinsRefused")
