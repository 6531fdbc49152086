# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus with our alerts, and a real node_exporter that exports the metrics of a machine over TLS."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import load_document
from ansible_collections.attested.kubernetes.tests.support.api_bed import Authority
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MONITORING = ROOT / "docs" / "monitoring"
ALERTS = MONITORING / "alerts.yml"
PROGRAMS = ("prometheus", "promtool", "prometheus-node-exporter")
_START_SECONDS = 900
_READER = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1], timeout=5).read())"


def why_not() -> str | None:
    """Return why nothing of this can be run here, or None."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {', '.join(missing)} here (packages prometheus, prometheus-node-exporter)" if missing else None


def rules() -> list[dict[str, Any]]:
    """Return the alerts that we ship."""
    return [rule for group in load_document(ALERTS.read_bytes())["groups"] for rule in group["rules"]]


def impatient(text: str) -> str:
    """Return the rules with two seconds instead of minutes; those that wait for hours stay."""
    return re.sub(r"(?m)^( +for:) [0-9]+m$", r"\1 2s", text)


def hastened(text: str) -> str:
    """Return the rules with two seconds instead of minutes and hours; a read is old after ten."""
    text = re.sub(r"(?m)^( +for:) .*$", r"\1 2s", text)
    return text.replace("_read_time_seconds > 180", "_read_time_seconds > 10")


class PrometheusBed:
    """Prometheus and node_exporter as processes; `figures` is where node_exporter reads files.

    ``enter``: the words before each command that run it in another network namespace.
    """

    def __init__(self, directory: Path, *, enter: Sequence[str] = ()) -> None:
        """Use ``directory``, which is empty."""
        self._enter = tuple(enter)
        self.figures = directory / "figures"
        self.figures.mkdir()
        self._directory = directory
        self._port, self._exporter = free_port(), free_port()

    @contextmanager
    def running(self, *, text: str) -> Iterator[None]:
        """Run both with the rules of ``text`` while the block lasts."""
        ca = Authority.make(self._directory)
        ca.issue("exporter", names=[(NameOID.COMMON_NAME, "node_exporter")], server=True)
        pair = {"cert_file": f"{self._directory}/exporter.crt", "key_file": f"{self._directory}/exporter.key"}
        (self._directory / "web.yml").write_text(json.dumps({"tls_server_config": pair}), encoding="utf-8")
        scrape = {
            "job_name": "node",
            "scheme": "https",
            "tls_config": {"ca_file": f"{self._directory}/ca.crt"},
            "static_configs": [{"targets": [f"127.0.0.1:{self._exporter}"]}],
        }
        with (
            self._process(
                "prometheus-node-exporter",
                "--collector.disable-defaults",
                "--collector.textfile",
                f"--collector.textfile.directory={self.figures}",
                f"--web.listen-address=127.0.0.1:{self._exporter}",
                f"--web.config.file={self._directory}/web.yml",
            ),
            self.scraping(scrape, text=text),
        ):
            yield

    @contextmanager
    def scraping(self, scrape: Mapping[str, Any], *, text: str) -> Iterator[None]:
        """Run Prometheus with one scrape configuration and the rules of ``text`` while the block lasts."""
        (self._directory / "alerts.yml").write_text(text, encoding="utf-8")
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [scrape],
        }
        (self._directory / "prometheus.yml").write_text(json.dumps(settings), encoding="utf-8")
        with self._process(
            "prometheus",
            f"--config.file={self._directory}/prometheus.yml",
            f"--storage.tsdb.path={self._directory}/data",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ):
            yield

    def is_up(self) -> bool:
        """Return whether Prometheus answers."""
        try:
            return bool(self._get("/api/v1/status/buildinfo")["status"] == "success")
        except OSError:
            return False

    def firing(self) -> dict[str, dict[str, str]]:
        """Return labels and annotations of each alert that fires, by name."""
        answer = self._get("/api/v1/alerts")
        alerts = [one for one in answer["data"]["alerts"] if one["state"] == "firing"]
        return {one["labels"]["alertname"]: {**one["labels"], **one["annotations"]} for one in alerts}

    def value(self, expression: str) -> float | None:
        """Return the one value of an expression, None where it has none."""
        found = self._get(f"/api/v1/query?query={urllib.parse.quote(expression)}")["data"]["result"]
        return float(found[0]["value"][1]) if found else None

    def fired(self, *, seconds: int) -> set[str]:
        """Return the names of the alerts that have fired within the last ``seconds``."""
        expression = f'max_over_time(ALERTS{{alertstate="firing"}}[{seconds}s])'
        found = self._get(f"/api/v1/query?query={urllib.parse.quote(expression)}")["data"]["result"]
        return {one["metric"]["alertname"] for one in found}

    def _get(self, path: str) -> Any:
        """Return an answer of Prometheus; raises OSError if there is none."""
        argv = (*self._enter, sys.executable, "-c", _READER, f"http://127.0.0.1:{self._port}{path}")
        done = subprocess.run(argv, capture_output=True, check=False)
        if done.returncode:
            raise OSError(f"expected an answer of Prometheus to {path}: {done.stderr.decode()[-200:]}")
        return json.loads(done.stdout)

    @contextmanager
    def _process(self, *argv: str) -> Iterator[None]:
        with (self._directory / f"{Path(argv[0]).name}.log").open("wb") as log:
            process = subprocess.Popen((*self._enter, *argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=_START_SECONDS)


def wait_until(holds: Callable[[], bool], *, step: Callable[[], object], seconds: float = _START_SECONDS) -> None:
    """Do ``step`` again and again until ``holds``; raises after so long."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"expected it within {seconds:g} s")
        step()
        time.sleep(0.3)


def promtool(*words: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool; return what it said."""
    return subprocess.run(["promtool", *words], cwd=directory, capture_output=True, text=True, check=False)


def check_expressions(expressions: Mapping[str, str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Let promtool parse ``expressions``, each as a rule of its own name."""
    rules = [{"record": f"x:{number}", "expr": text} for number, text in enumerate(expressions.values())]
    path = directory / "expressions.yml"
    path.write_text(json.dumps({"groups": [{"name": "x", "rules": rules}]}), encoding="utf-8")
    return promtool("check", "rules", str(path))
