# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus metrics of a service, and the loopback pages `/metrics`, `/healthz`, `/readyz`.

Counters come from the log: each line is counted by event, outcome and reason. These labels have fixed values, so that
no peer can create a time series. No secret is counted.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from .._deps.metrics import prometheus
from ..errors import DependencyError, TransportError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .logs import Log

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_PAGE_SECONDS = 5.0


class Metrics:
    """The metrics of one service; ``service`` (join, key) is part of every name."""

    def __init__(self, service: str) -> None:
        """Start at zero; raises DEPENDENCY_MISSING if prometheus_client is not installed."""
        self._prefix = f"attested_{service}"
        self._registry = prometheus.CollectorRegistry(auto_describe=True)
        self._events = prometheus.Counter(
            f"{self._prefix}_events",
            "Lines of the service's log.",
            ("event", "outcome", "reason"),
            registry=self._registry,
        )
        self._seconds = prometheus.Histogram(
            f"{self._prefix}_request_seconds",
            "How long requests took.",
            ("event",),
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def observe(self, event: str, fields: Mapping[str, object]) -> None:
        """Count one line of the log."""
        reason = known_reason(str(fields.get("reason", "")))
        self._events.labels(event=event, outcome=str(fields.get("outcome", "")), reason=reason).inc()
        seconds = fields.get("seconds")
        if "outcome" in fields and isinstance(seconds, float):
            self._seconds.labels(event=event).observe(seconds)

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show ``value()`` as ``attested_<service>_<name>`` at each scrape."""
        prometheus.Gauge(f"{self._prefix}_{name}", text, registry=self._registry).set_function(value)

    def gauge_each(self, name: str, text: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        """Show one value for each key of ``values()``; the keys must be names that an admin chose."""
        full = f"{self._prefix}_{name}"

        class Each:
            """Collects at each scrape, so that removed names have no value."""

            def collect(self) -> Iterable[Any]:
                found = prometheus.metrics_core.GaugeMetricFamily(full, text, labels=(label,))
                for word, value in values().items():
                    found.add_metric((word,), value)
                return (found,)

        self._registry.register(Each())

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return bytes(prometheus.generate_latest(self._registry))


def known_reason(code: str) -> str:
    """Return ``code`` if it is one of our reason codes, ``other`` if it is not, and nothing if it is empty."""
    return code if code in Reason.__members__ else "other" if code else ""


# Metrics of a program that ends: a file for node_exporter (docs/adr/0079). Written without prometheus_client, which
# workers do not have.


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One gauge: its values by their labels, which have fixed values."""

    name: str
    text: str
    values: Mapping[tuple[tuple[str, str], ...], float]


def figures_file(figures: Iterable[Figure]) -> bytes:
    """Return ``figures`` in Prometheus' text format; gauges without a value are left out."""
    return "".join(_written(figure) for figure in figures if figure.values).encode()


def _written(figure: Figure) -> str:
    lines = [f"# HELP {figure.name} {figure.text}", f"# TYPE {figure.name} gauge"]
    for labels, value in figure.values.items():
        shown = ",".join(f'{name}="{word}"' for name, word in labels)
        lines.append(f"{figure.name}{{{shown}}} {value:.15g}" if labels else f"{figure.name} {value:.15g}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Page:
    """One response: HTTP status and text."""

    status: int
    text: bytes


class Pages:
    """A small HTTP server on loopback that serves pages by their paths, each request in its own thread."""

    def __init__(self, pages: Mapping[str, Callable[[], Page]]) -> None:
        """Serve ``pages``; any other path is 404."""
        self._pages = dict(pages)
        self._server: ThreadingHTTPServer | None = None

    def start(self, address: str, port: int) -> int:
        """Listen and return the port; raises PORT_UNAVAILABLE."""
        try:
            self._server = ThreadingHTTPServer((address, port), self._handler())
        except OSError as error:
            raise TransportError(
                f"cannot listen at {address}:{port}: {error.strerror or error}", reason=Reason.PORT_UNAVAILABLE
            ) from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="pages", daemon=True).start()
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pages = self._pages

        class Handler(BaseHTTPRequestHandler):
            """Serves GET without naming server and Python version."""

            timeout = _PAGE_SECONDS
            server_version = "attested"
            sys_version = ""

            def do_GET(self) -> None:
                page = pages[self.path]() if self.path in pages else Page(404, b"not found\n")
                self.send_response(page.status)
                self.send_header("Content-Type", _TEXT)
                self.send_header("Content-Length", str(len(page.text)))
                self.end_headers()
                self.wfile.write(page.text)

            def log_message(self, *_unused: Any) -> None:
                """Log nothing, since the log has only the service's own lines."""

        return Handler


def health_page(sentence: str, *, is_good: bool = True) -> Page:
    """Return 200 or 503 with the text of ``systemctl status``."""
    return Page(200 if is_good else 503, f"{sentence}\n".encode())


def counted(service: str, log: Log) -> Metrics | None:
    """Return the metrics of ``service``, counted from its log; None, and one log line, if the library is missing.

    Tickets matter more than metrics, so a service continues without them.
    """
    try:
        metrics = Metrics(service)
    except DependencyError as error:
        log.event("metrics_absent", reason=error.code, detail=error.message)
        return None
    log.observed_by(metrics.observe)
    return metrics
