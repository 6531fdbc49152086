# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in docs/monitoring names what the code shows, and nothing else."""

from __future__ import annotations

import re

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import (
    load_document,
    load_json,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.agent import COMMANDS as PROGRAMS
from ansible_collections.attested.kubernetes.plugins.module_utils.node.figures import UNITS
from ansible_collections.attested.kubernetes.plugins.module_utils.node.run_record import COMMANDS
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

UTILS = ROOT / "plugins" / "module_utils"
PAGE = (ROOT / "docs/tasks/monitor-the-cluster.md").read_text(encoding="utf-8")
MONITORING = ROOT / "docs" / "monitoring"
DASHBOARD = load_json((MONITORING / "dashboard.json").read_bytes())
ALERTS = load_document((ROOT / "docs/monitoring/alerts.yml").read_bytes())
OF_OTHERS = {"node_textfile_scrape_error"}
"""What node_exporter shows of itself."""

_LABELS = re.compile(r"\{[^}]*\}|\b(?:by|without|on|ignoring)\s*\([^)]*\)|\"[^\"]*\"")
_WORDS = re.compile(r"[a-z_][a-z_0-9]*(?![a-z_0-9]*\s*\()")
_OPERATORS = {"and", "bool", "or", "unless"} | set("smhd")


def shown() -> set[str]:
    """Return the metrics of the code: of the node, and by the names that the two services give their gauges."""
    found = set(re.findall(r"\"(attested_node_[a-z_]+)\"", (UTILS / "node/figures.py").read_text(encoding="utf-8")))
    for service, file in (("join", "services/join_service.py"), ("key", "keyservice/app.py")):
        text = (UTILS / file).read_text(encoding="utf-8")
        gauges = re.findall(r"metrics\.gauge(?:_each)?\(\s*\"([a-z_]+)\"", text)
        assert gauges
        found |= {f"attested_{service}_{name}" for name in (*gauges, "events_total", "request_seconds")}
    return found


def metrics_of(expression: str) -> set[str]:
    """Return the metrics that an expression names: every word that is no function, label, operator or duration."""
    plain = _LABELS.sub("", re.sub(r"\[[^\]]*\]", "", expression))
    return {re.sub(r"_(bucket|count|sum)$", "", word) for word in _WORDS.findall(plain)} - _OPERATORS


def expressions() -> dict[str, str]:
    return {rule["alert"]: rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]}


def panels() -> dict[str, str]:
    """Return each expression of the dashboard by its panel's title and its letter."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    }


def test_the_words_of_an_expression_are_found() -> None:
    text = 'sum without (instance) (rate(a_b_bucket{x="c_d"}[5m])) > 3 and on (q) max by (y) (e_f) or time() - g'
    assert metrics_of(text) == {"a_b", "e_f", "g"}


@pytest.mark.parametrize("name", expressions())
def test_an_alert_looks_at_metrics_that_are_there(name: str) -> None:
    found = metrics_of(expressions()[name])
    assert found
    assert found <= shown() | OF_OTHERS


@pytest.mark.parametrize("name", panels())
def test_a_panel_looks_at_metrics_that_are_there(name: str) -> None:
    found = metrics_of(panels()[name])
    assert found
    assert found <= shown()


def test_every_metric_is_in_an_alert_or_on_the_dashboard() -> None:
    looked_at = {name for text in (*expressions().values(), *panels().values()) for name in metrics_of(text)}
    assert looked_at - OF_OTHERS == shown()


def test_no_two_panels_are_one_and_each_is_of_the_chosen_source() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    targets = [target for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    assert {target["datasource"]["uid"] for target in targets} == {"${datasource}"}
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource", "instance"]
    places = sorted((panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in DASHBOARD["panels"])
    assert len(set(places)) == len(places)


def test_a_service_monitor_finds_its_service() -> None:
    documents = load_document((MONITORING / "service-monitor.yml").read_bytes())["items"]
    service, slice_, monitor = documents
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert slice_["metadata"]["labels"]["kubernetes.io/service-name"] == service["metadata"]["name"]
    assert len({one["metadata"]["namespace"] for one in documents}) == 1
    port = monitor["spec"]["endpoints"][0]["port"]
    assert [service["spec"]["ports"][0]["name"], slice_["ports"][0]["name"]] == [port, port]
    assert service["spec"]["ports"][0]["port"] == slice_["ports"][0]["port"]


def test_the_page_of_a_join_service_is_scraped_where_it_is() -> None:
    defaults = load_document((ROOT / "roles/join_service/defaults/main.yml").read_bytes())
    jobs = load_document((MONITORING / "scrape.yml").read_bytes())["scrape_configs"]
    asked = [job["static_configs"][0]["targets"] for job in jobs if job["job_name"] == "attested-services"]
    assert asked == [[f"127.0.0.1:{defaults['join_service_metrics_port']}"]]


def test_the_page_names_every_metric_and_no_other() -> None:
    named = set(re.findall(r"`(attested_(?:node|join|key)_[a-z_]+)(?:\{[^`]*)?`", PAGE))
    assert named == shown()


def test_the_page_names_every_alert_and_no_other() -> None:
    assert re.findall(r"^\| `(Attested[A-Za-z]+)`", PAGE, re.MULTILINE) == list(expressions())


@pytest.mark.parametrize(
    ("label", "words"),
    [
        pytest.param("command", set(COMMANDS), id="commands"),
        pytest.param("service", {"join", "key"}, id="services"),
        pytest.param("unit", set(UNITS), id="units"),
    ],
)
def test_an_alert_asks_for_labels_that_are_there(label: str, words: set[str]) -> None:
    asked = {
        word
        for expression in expressions().values()
        for said in re.findall(rf"{label}=~?\"([^\"]+)\"", expression)
        for word in said.split("|")
    }
    assert asked <= words


def test_what_an_alert_tells_to_run_is_there() -> None:
    told = " ".join(rule["annotations"]["description"] for group in ALERTS["groups"] for rule in group["rules"])
    playbooks = set(re.findall(r"attested\.kubernetes\.([a-z_]+)", told))
    assert playbooks
    assert all((ROOT / f"playbooks/{name}.yml").exists() for name in playbooks)
    units = {name.removeprefix("attested-") for name in re.findall(r"attested-[a-z-]+[a-z]", told)}
    known = {unit.removeprefix("attested-") for unit in UNITS} | set(PROGRAMS)
    assert units <= known | {"kubernetes"}
