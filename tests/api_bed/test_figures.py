# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What both services show of themselves, read as Prometheus reads it, and that SIGHUP changes it."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.audit import verify_audit
from ansible_collections.attested.kubernetes.plugins.module_utils.bootstrap.audit import lines_of
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed


def page(bed: ServiceBed, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{bed.metrics_port}{path}", timeout=5) as answer:
        return str(answer.read().decode())


def figures(bed: ServiceBed) -> dict[str, float]:
    return {
        " ".join((one.name, one.labels.get("event", ""), one.labels.get("outcome", ""))).strip(): one.value
        for family in text_string_to_metric_families(page(bed, "/metrics"))
        for one in family.samples
    }


def test_a_ticket_is_counted_by_both_services_and_recorded(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    machine = machines()
    before = figures(bed)
    machine.ask()
    after = figures(bed)
    for name in ("attested_join_events_total call ok", "attested_key_events_total key_release ok"):
        assert after[name] > before.get(name, 0)
    assert after["attested_key_audit_sequence"] > before["attested_key_audit_sequence"]
    report = verify_audit(lines_of(str(bed.directory / "audit")))
    assert report.events["release given"] >= 1
    given = [json.loads(line) for line in lines_of(str(bed.directory / "audit"))]
    assert given[-1]["node"] == machine.name


def test_health_and_readiness_are_pages(bed: ServiceBed) -> None:
    assert page(bed, "/healthz") == "alive\n"
    assert "serving" in page(bed, "/readyz")


def test_a_hangup_reads_the_configuration_again(bed: ServiceBed) -> None:
    before = figures(bed)
    for name in ("join", "key"):
        bed.processes[name].send_signal(signal.SIGHUP)
    names = ("attested_join_config_generation", "attested_key_config_generation")
    for _unused in range(100):
        after = figures(bed)
        if all(after[name] == before[name] + 1 for name in names):
            break
        time.sleep(0.05)
    assert [after[name] - before[name] for name in names] == [1, 1]


def test_a_broken_configuration_leaves_the_old_one(bed: ServiceBed) -> None:
    path = Path(bed.directory / "join.yml")
    good, before = path.read_text(), figures(bed)
    try:
        path.write_text("listen_port: many")
        bed.processes["join"].send_signal(signal.SIGHUP)
        for _unused in range(100):
            if [line for line in bed.lines("join") if line["event"] == "reload_refused"]:
                break
            time.sleep(0.05)
    finally:
        path.write_text(good)
    assert [line["reason"] for line in bed.lines("join") if line["event"] == "reload_refused"] == ["CONFIG_INVALID"]
    assert figures(bed)["attested_join_config_generation"] == before["attested_join_config_generation"]
