# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures, pages and a configuration that is read again."""

from __future__ import annotations

import io
import urllib.error
import urllib.request

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils._deps import Missing
from ansible_collections.attested.kubernetes.plugins.module_utils.core import metrics as metrics_module
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.core.metrics import (
    Figure,
    Metrics,
    Page,
    Pages,
    counted,
    figures_file,
    health_page,
    known_reason,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import Reloader
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from prometheus_client.parser import text_string_to_metric_families


def samples(text: bytes) -> dict[tuple[str, str], float]:
    return {
        (one.name, one.labels.get("reason", "")): one.value
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    }


def test_the_lines_of_the_log_are_counted() -> None:
    log = open_log(stream=io.StringIO(), environ={})
    metrics = counted("join", log)
    assert metrics is not None
    for reason in ("CHALLENGE_RATE", "CHALLENGE_RATE", "PCR_MISMATCH"):
        log.event("call", outcome="refused", reason=reason, seconds=0.02)
    found = samples(metrics.exposition())
    assert found["attested_join_events_total", "CHALLENGE_RATE"] == 2
    assert found["attested_join_events_total", "PCR_MISMATCH"] == 1
    assert found["attested_join_request_seconds_count", ""] == 3


def test_no_word_of_a_peer_becomes_a_time_series() -> None:
    metrics = Metrics("join")
    for number in range(100):
        metrics.observe("call", {"outcome": "refused", "reason": f"made up {number}", "remote": str(number)})
    assert len([key for key in samples(metrics.exposition()) if key[0] == "attested_join_events_total"]) == 1


def test_a_gauge_shows_the_state_of_now() -> None:
    values = iter((3.0, 4.0))
    metrics = Metrics("key")
    metrics.gauge("audit_sequence", "Number.", lambda: next(values))
    assert samples(metrics.exposition())["attested_key_audit_sequence", ""] == 3
    assert samples(metrics.exposition())["attested_key_audit_sequence", ""] == 4


def test_a_figure_of_each_name_goes_with_the_name() -> None:
    values = {"w-1": 5.0, "w-2": 0.0}
    metrics = Metrics("key")
    metrics.gauge_each("node_attested_time_seconds", "When.", "node", lambda: values)

    def found() -> dict[str, float]:
        return {
            one.labels["node"]: one.value
            for family in text_string_to_metric_families(metrics.exposition().decode())
            for one in family.samples
            if one.name == "attested_key_node_attested_time_seconds"
        }

    assert found() == values
    del values["w-1"]
    assert found() == {"w-2": 0.0}


def test_figures_of_a_program_that_ends() -> None:
    text = figures_file(
        (
            Figure(name="attested_a", text="One.", values={(): 1795769559.09232}),
            Figure(name="attested_b", text="Two.", values={(("x", "1"), ("y", "2")): 0.0}),
            Figure(name="attested_c", text="None.", values={}),
        )
    )
    assert text.decode().splitlines() == [
        "# HELP attested_a One.",
        "# TYPE attested_a gauge",
        "attested_a 1795769559.09232",
        "# HELP attested_b Two.",
        "# TYPE attested_b gauge",
        'attested_b{x="1",y="2"} 0',
    ]


@pytest.mark.parametrize(("code", "known"), [("PCR_MISMATCH", "PCR_MISMATCH"), ("made up", "other"), ("", "")])
def test_a_reason_is_a_word_of_ours(code: str, known: str) -> None:
    assert known_reason(code) == known


def test_a_service_goes_on_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "prometheus", Missing("prometheus_client"))
    written = io.StringIO()
    assert counted("join", open_log(stream=written, environ={})) is None
    assert "DEPENDENCY_MISSING" in written.getvalue()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_pages_are_shown_and_nothing_else() -> None:
    ready = []
    pages = Pages(
        {
            "/healthz": lambda: health_page("alive"),
            "/metrics": lambda: Page(200, b"x 1\n"),
            "/readyz": lambda: health_page("certificate: starting", is_good=bool(ready)),
        }
    )
    port = pages.start("127.0.0.1", 0)
    try:
        assert get(port, "/healthz") == (200, "alive\n")
        assert get(port, "/metrics") == (200, "x 1\n")
        assert get(port, "/readyz") == (503, "certificate: starting\n")
        ready.append(True)
        assert get(port, "/readyz")[0] == 200
        assert get(port, "/etc/passwd")[0] == 404
        with pytest.raises(AttestedError) as caught:
            Pages({}).start("127.0.0.1", port)
        assert caught.value.code == "PORT_UNAVAILABLE"
    finally:
        pages.stop()


def test_a_configuration_is_read_again_whole_or_not_at_all() -> None:
    applied: list[int] = []
    files = [7, SiteError("broken", reason=Reason.CONFIG_INVALID), 9]

    def load() -> int:
        found = files.pop(0)
        if isinstance(found, SiteError):
            raise found
        return found

    written = io.StringIO()
    reloader = Reloader(load, applied.append, log=open_log(stream=written, environ={}))
    generations = []
    for _unused in range(3):
        reloader.reload()
        generations.append(reloader.generation)
    assert (applied, generations) == ([7, 9], [2, 2, 3])
    assert written.getvalue().count("reload_refused") == 1
