# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What both services show of themselves, read as Prometheus reads it, and that SIGHUP changes it."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.cli.audit import lines_of
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.auditing import verify_audit
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of, refused
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    assert after["attested_key_audit_unsigned_records"] > 0
    assert abs(after["attested_key_nodes_read_time_seconds"] - time.time()) < 120
    report = verify_audit(lines_of(str(bed.directory / "audit")))
    assert report.events["release given"] >= 1
    given = [json.loads(line) for line in lines_of(str(bed.directory / "audit"))]
    assert given[-1]["node"] == machine.name


def test_health_and_readiness_are_pages(bed: ServiceBed) -> None:
    assert page(bed, "/healthz") == "alive\n"
    assert "serving" in page(bed, "/readyz")


def hangup(bed: ServiceBed, name: str) -> None:
    """Send SIGHUP, and wait until the service says that it read its file."""

    def times() -> int:
        return sum(line["event"] == "reloaded" for line in bed.lines(name))

    before = times()
    bed.processes[name].send_signal(signal.SIGHUP)
    for _unused in range(600):
        if times() > before:
            return
        time.sleep(0.05)
    raise AssertionError(f"expected the {name} service to read its configuration again, it said nothing")


@contextmanager
def configured(bed: ServiceBed, name: str, **entries: object) -> Iterator[None]:
    """Let a running service read other ``entries``, and those from before in the end."""
    path = Path(bed.directory / f"{name}.yml")
    good = path.read_text()
    try:
        path.write_text(json.dumps({**json.loads(good), **entries}))
        hangup(bed, name)
        yield
    finally:
        path.write_text(good)
        hangup(bed, name)


def test_a_hangup_reads_the_configuration_again(bed: ServiceBed) -> None:
    before = figures(bed)
    for name in ("join", "key"):
        hangup(bed, name)
    after = figures(bed)
    names = ("attested_join_config_generation", "attested_key_config_generation")
    assert [after[name] - before[name] for name in names] == [1, 1]


def test_the_join_service_holds_to_a_new_limit(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    machine = machines()
    machine.ask()
    with configured(bed, "join", challenges_per_second=0.001, challenge_burst=1):
        machine.ask()
        assert code_of(machine.ask) == "JOIN_SERVICE_BUSY"
        assert bed.last_refusal("join")["reason"] == "CHALLENGE_RATE"
    machine.ask()


def test_the_key_service_says_what_it_was_told_anew(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    machine = machines()
    before = machine.ask().public
    with configured(bed, "key", api_endpoint="moved.bed.example:7443"):
        moved = machine.ask().public
    after = machine.ask().public
    told = [one.api_endpoint for one in (before, moved, after)]
    assert told == ["api.bed.example:6443", "moved.bed.example:7443", "api.bed.example:6443"]


def test_the_key_service_demands_what_it_was_told_anew(
    bed: ServiceBed, machines: Callable[..., Machine], tmp_path: Path
) -> None:
    """A root of TPM makers: from then on a machine without a certificate of its chip is refused."""
    machine, roots = machines(), tmp_path / "roots.pem"
    machine.ask()
    roots.write_bytes((bed.api.directory / "ca.crt").read_bytes())
    with configured(bed, "key", ek_roots=str(roots)):
        assert refused(machine.ask, bed)["reason"] == "EK_CERTIFICATE_MISSING"
    machine.ask()


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
