# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S30: names that try to write lines of their own into the log."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log
from ansible_collections.attested.kubernetes.tests.support.refusal import refused
from ansible_collections.attested.kubernetes.tests.support.service_bed import Attack, Machine, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

THREAT = Threat(
    id="S30",
    title="Log injection through identifiers",
    case="GHSA-87gh-qc28-j9mm",
    bed="api",
    stops=(
        ("core/logs.py", ""),
        ("keyservice/release.py step 6", "DISK_ID_NOT_ASSIGNED"),
        ("keyservice/kubelet.py step 3", "CSR_NAME_MISMATCH"),
    ),
)

HOSTILE = [
    pytest.param('x\n{"event": "key_release", "outcome": "ok"}', id="a record behind a line's end"),
    pytest.param("x\r\nboot ok", id="a carriage return"),
    pytest.param("\x1b[2J\x1b[1;32mok", id="ANSI"),
    pytest.param('", "outcome": "ok", "x": "', id="quotes"),
    pytest.param("w\u202e1-pc\u200b", id="letters that turn the line round"),
    pytest.param("\u0441p-1", id="a look-alike"),
    pytest.param("\u2028x\u2029y\x85z", id="other ends of a line"),
    pytest.param("x" * 10_000, id="ten thousand letters"),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_one_record_a_decision(bed: ServiceBed, machines: Callable[..., Machine], name: str) -> None:
    """As a disk id, which the refusal quotes: every line of both logs parses, and one of them is this refusal."""
    machine = machines()
    assert machine.ask()
    line = refused(lambda: machine.attack(Attack(fields={"disk_uuid": name})), bed)
    assert line["reason"] == "DISK_ID_NOT_ASSIGNED"
    for service in ("key", "join"):
        text = (bed.directory / f"{service}.log").read_bytes()
        assert not set(text) & (set(range(32)) - {10})
        assert all(isinstance(json.loads(one), dict) for one in text.splitlines() if one.startswith(b"{"))
        assert all(len(one) < 5000 for one in text.splitlines())


@pytest.mark.parametrize("name", ["w\n1", "\x1b[2Jx", "\u0441p-1"])
def test_names_in_requests(bed: ServiceBed, machines: Callable[..., Machine], name: str) -> None:
    machine = machines()
    assert machine.attack(Attack()).response
    other = machines()
    assert refused(lambda: other.attack(Attack(csr_name=name)), bed)["reason"] == "CSR_NAME_MISMATCH"


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("as_json", [True, False], ids=["under systemd", "on a terminal"])
def test_a_line_is_a_line(name: str, *, as_json: bool) -> None:
    stream = io.StringIO()
    log = Log(stream, as_json=as_json, clock=SystemClock())
    log.event("good", node="w-1")
    log.event("refused", node=name, outcome="refused")
    written = stream.getvalue()
    assert written.count("\n") == 2
    assert len(written.splitlines()) == 2
    assert "\x1b" not in written
    if as_json:
        record = json.loads(written.splitlines()[1])
        assert (record["event"], record["outcome"]) == ("refused", "refused")
        assert record["node"] == name or len(name) > 2000
