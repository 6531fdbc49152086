# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program over real HTTP: whole, by halves, from servers that do not have it, redirect, hang up or show a page."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.download import (
    ROUNDS,
    Downloader,
    SystemWeb,
    Upstream,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.random import SeededRandom

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KUBELET = b"\x7fELF kubelet " * 100_000
HALF = 600_000


class Patient(SystemClock):
    """Nobody waits for a pause."""

    def sleep(self, seconds: float) -> None:
        """Go on."""
        del seconds


class Handler(BaseHTTPRequestHandler):
    """Answers by the name of the path; notes what was asked."""

    server: Any
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Give the whole, the rest, the first half, a page, or a status."""
        self.server.asked.append((self.path, self.headers.get("Range")))
        wanted = self.headers.get("Range", "bytes=0-")[6:-1]
        start = int(wanted)
        name = self.path.strip("/")
        if name.isdecimal():
            self.send_error(int(name))
        elif name == "page":
            self._say(200, b"<html>Log in</html>", {"Content-Type": "text/html; charset=utf-8"})
        elif name in {"away", "file"}:
            self._say(302, b"", {"Location": "/kubelet" if name == "away" else "file:///etc/passwd"})
        elif name == "stubborn" or not start:
            broken = name == "half" and len(self.server.asked) == 1
            self._say(200, KUBELET, {"Content-Type": "application/octet-stream"}, cut=HALF if broken else None)
        elif start >= len(KUBELET):
            self.send_error(416)
        else:
            where = f"bytes {start}-{len(KUBELET) - 1}/{len(KUBELET)}"
            self._say(206, KUBELET[start:], {"Content-Range": where})

    def _say(self, status: int, body: bytes, headers: dict[str, str], *, cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:cut])
        self.close_connection = cut is not None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def fetch(place: Path, *urls: str) -> bytes:
    upstream = Upstream(name="kubelet", urls=urls, sha256=hashlib.sha256(KUBELET).hexdigest())
    Downloader(web=SystemWeb(), clock=Patient(), random=SeededRandom(1)).fetch(upstream, place)
    return place.read_bytes()


def reason_of(place: Path, *urls: str) -> Reason:
    with pytest.raises(AttestedError) as caught:
        fetch(place, *urls)
    return caught.value.reason


def at(server: Any, name: str) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/{name}"


@pytest.mark.parametrize("name", ["kubelet", "away"], ids=["as it is", "after a redirection"])
def test_a_program_is_brought(server: Any, tmp_path: Path, name: str) -> None:
    assert fetch(tmp_path / "kubelet", at(server, name)) == KUBELET


def test_half_a_download_goes_on_where_it_broke_off(server: Any, tmp_path: Path) -> None:
    assert fetch(tmp_path / "kubelet", at(server, "half")) == KUBELET
    assert server.asked == [("/half", None), ("/half", f"bytes={HALF}-")]


@pytest.mark.parametrize("name", ["kubelet", "stubborn"], ids=["goes on", "begins anew"])
def test_what_a_killed_run_left_is_used_or_replaced(server: Any, tmp_path: Path, name: str) -> None:
    place = tmp_path / "kubelet"
    place.write_bytes(KUBELET[:HALF])
    assert fetch(place, at(server, name)) == KUBELET
    assert server.asked == [(f"/{name}", f"bytes={HALF}-")]


def test_more_than_there_is_begins_anew(server: Any, tmp_path: Path) -> None:
    place = tmp_path / "kubelet"
    place.write_bytes(KUBELET + b"more")
    assert fetch(place, at(server, "kubelet")) == KUBELET


@pytest.mark.parametrize(
    ("name", "reason", "times"),
    [
        pytest.param("404", Reason.COMPONENT_NOT_FOUND, 1, id="404"),
        pytest.param("403", Reason.COMPONENT_NOT_FOUND, 1, id="403"),
        pytest.param("503", Reason.COMPONENT_UNREACHABLE, ROUNDS, id="503"),
        pytest.param("429", Reason.COMPONENT_UNREACHABLE, ROUNDS, id="429"),
        pytest.param("page", Reason.COMPONENT_IS_A_PAGE, 1, id="a proxy that answers HTML"),
        pytest.param("file", Reason.COMPONENT_NOT_FOUND, 1, id="a redirection to a file"),
    ],
)
def test_a_server_that_does_not_give_it(server: Any, tmp_path: Path, name: str, reason: Reason, times: int) -> None:
    place = tmp_path / "kubelet"
    assert reason_of(place, at(server, name)) is reason
    assert len(server.asked) == times
    assert fetch(place, at(server, name), at(server, "kubelet")) == KUBELET


def test_nobody_at_the_port_and_no_such_file(server: Any, tmp_path: Path) -> None:
    place = tmp_path / "kubelet"
    assert reason_of(place, "http://127.0.0.1:1/kubelet") is Reason.COMPONENT_UNREACHABLE
    assert reason_of(place, str(tmp_path / "absent")) is Reason.COMPONENT_NOT_FOUND
    assert fetch(place, "http://127.0.0.1:1/kubelet", at(server, "kubelet")) == KUBELET
