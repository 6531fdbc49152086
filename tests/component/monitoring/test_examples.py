# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboard and the scrape configuration, as Prometheus' own tool reads them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import load_document, load_json
from ansible_collections.attested.kubernetes.tests.support.prometheus_bed import (
    ALERTS,
    MONITORING,
    check_expressions,
    promtool,
    why_not,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))


def expressions() -> dict[str, str]:
    """Return each expression of the dashboard by its panel's title and its letter."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in load_json((MONITORING / "dashboard.json").read_bytes())["panels"]
        for target in panel.get("targets", ())
    }


def test_prometheus_parses_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    done = check_expressions(expressions(), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(expressions())} rules found" in done.stdout


def test_an_expression_that_is_none_is_found(tmp_path: Path) -> None:
    assert check_expressions({**expressions(), "broken": "sum by (rate("}, tmp_path).returncode == 1


def test_prometheus_takes_the_scrape_configuration(tmp_path: Path) -> None:
    """With the CA file in a place of the test. Debian's Prometheus cannot ask Kubernetes, so one list is another's."""
    ca = tmp_path / "ca.pem"
    ca.touch()
    settings = load_document((MONITORING / "scrape.yml").read_bytes())
    first, second, _third = settings["scrape_configs"]
    first["tls_config"]["ca_file"] = str(ca)
    assert second.pop("kubernetes_sd_configs") == [{"role": "node"}]
    second["static_configs"] = [{"targets": ["192.0.2.11:10250"]}]
    (tmp_path / "scrape.yml").write_text(json.dumps(settings), encoding="utf-8")
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    done = promtool("check", "config", "scrape.yml", directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
