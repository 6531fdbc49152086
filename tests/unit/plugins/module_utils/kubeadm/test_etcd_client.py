# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of etcd's members, as whom, and what their answers mean; the answers are as etcd 3.6 gives them.

`tests/api_bed/test_etcd_members.py` asks a real cluster.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import EtcdError, KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_client import (
    EtcdCredentials,
    EtcdGateway,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_members import Member
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.tests.unit.fakes.pki import pem, sign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIST, REMOVE, HEALTH = "/v3/cluster/member/list", "/v3/cluster/member/remove", "/health"
RANGE = "/v3/kv/range"
WELL = (200, b'{"health":"true","reason":""}')
NOWHERE = "https://localhost:1"


@dataclass(slots=True)
class Served:
    """One member over TLS: its URL, what it answers to a path, and what it was asked."""

    url: str = ""
    answers: dict[str, tuple[int, bytes] | Callable[[bytes], tuple[int, bytes]]] = field(
        default_factory=lambda: {HEALTH: WELL}
    )
    asked: list[tuple[str, str, str, bytes]] = field(default_factory=list)
    clients: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)


def handler_of(served: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            shown = dict(one[0] for one in self.connection.getpeercert()["subject"])  # type: ignore[attr-defined]
            served.clients.add(shown["commonName"])
            served.types.add(self.headers["Content-Type"])
            served.asked.append((self.command, self.path, served.url, body))
            given = served.answers[self.path]
            status, content = given(body) if callable(given) else given
            if not status:
                self.wfile.write(content)
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815 - the library's names

        def log_message(self, *_words: Any) -> None:
            pass

    return Handler


class Authority:
    """A CA that signs for servers at localhost, and for clients."""

    def __init__(self, directory: Path) -> None:
        now = datetime.now(UTC)
        self._span = {"begins": now - timedelta(days=1), "ends": now + timedelta(days=1)}
        self._ca, self._key = sign("etcd-ca", issuer=None, key=None, ca=True, **self._span)
        self.directory = directory
        directory.mkdir()
        (directory / "ca.crt").write_bytes(pem(self._ca))

    def write(self, name: str, common_name: str) -> tuple[Path, Path]:
        certificate, key = sign(common_name, issuer=self._ca, key=self._key, **self._span)
        paths = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        for path, thing in zip(paths, (certificate, key), strict=True):
            path.write_bytes(pem(thing))
        return paths


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("etcd") / "pki")
    made.write("healthcheck-client", "kube-etcd-healthcheck-client")
    made.write("server", "localhost")
    return made


@pytest.fixture(scope="module")
def two_servers(authority: Authority) -> Iterator[tuple[list[ThreadingHTTPServer], list[Served]]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.directory / "server.crt", authority.directory / "server.key")
    context.load_verify_locations(authority.directory / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    served = [Served(), Served()]
    servers = [ThreadingHTTPServer(("localhost", 0), handler_of(one)) for one in served]
    for server, one in zip(servers, served, strict=True):
        server.socket = context.wrap_socket(server.socket, server_side=True)
        one.url = f"https://localhost:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield servers, served
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def members(two_servers: Any) -> tuple[Served, Served]:
    """Two members that are well and were asked nothing."""
    for one in two_servers[1]:
        one.answers = {HEALTH: WELL}
        for kept in (one.asked, one.clients, one.types):
            kept.clear()
    return two_servers[1][0], two_servers[1][1]


@pytest.fixture
def first(members: tuple[Served, Served]) -> Served:
    return members[0]


@pytest.fixture
def gateway(first: Served, authority: Authority) -> EtcdGateway:
    return EtcdGateway(first.url, EtcdCredentials.below(authority.directory))


def listed(*members: dict[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps({"header": {"member_id": "1"}, "members": members}).encode()


def failed(gateway: EtcdGateway) -> EtcdError:
    with pytest.raises(EtcdError) as caught:
        gateway.members()
    return caught.value


def test_a_member_lists_all_and_each_is_asked_how_it_is(members: tuple[Served, Served], gateway: EtcdGateway) -> None:
    """The third was added and never started: it has neither name nor an address for clients."""
    first, second = members
    first.answers[LIST] = listed(
        {"ID": "10276657743932975437", "name": "cp-1", "peerURLs": ["https://p1"], "clientURLs": [first.url]},
        {"ID": "2", "name": "cp-2", "peerURLs": ["https://p2"], "clientURLs": [NOWHERE, second.url], "isLearner": True},
        {"ID": "3", "peerURLs": ["https://p3"]},
    )
    assert gateway.members() == (
        member(10276657743932975437, "cp-1", "https://p1", (first.url,), healthy=True),
        member(2, "cp-2", "https://p2", (NOWHERE, second.url), healthy=True, is_learner=True),
        member(3, "", "https://p3", (), healthy=False),
    )
    assert first.asked == [
        ("POST", LIST, first.url, b'{"linearizable": false}'),
        ("GET", HEALTH, first.url, b""),
    ]
    assert second.asked == [("GET", HEALTH, second.url, b"")]


def member(number: int, name: str, peer: str, urls: tuple[str, ...], **is_so: bool) -> Member:
    return Member(member_id=number, name=name, peer_urls=(peer,), client_urls=urls, **{"is_learner": False, **is_so})


def test_it_asks_as_the_client_that_kubeadm_gives_the_probe(first: Served, gateway: EtcdGateway) -> None:
    first.answers[LIST] = listed()
    assert gateway.members() == ()
    assert (first.clients, first.types) == ({"kube-etcd-healthcheck-client"}, {"application/json"})


@pytest.mark.parametrize(
    ("answer", "healthy"),
    [
        pytest.param(WELL, True, id="it says so"),
        pytest.param((200, b'{"health":true}'), True, id="it says so in another form"),
        pytest.param((503, b'{"health":"true"}'), False, id="it says so and means it not"),
        pytest.param((200, b'{"health":"false","reason":"RAFT NO LEADER"}'), False, id="it says the contrary"),
        pytest.param((200, b"true"), False, id="it says only a word"),
        pytest.param((200, b"{}"), False, id="it says nothing"),
        pytest.param((200, b"<html>"), False, id="somebody else is there"),
        pytest.param((0, b"no HTTP\r\n\r\n"), False, id="something else is there"),
    ],
)
def test_a_member_is_well_if_it_says_so(
    members: tuple[Served, Served], gateway: EtcdGateway, answer: tuple[int, bytes], healthy: bool
) -> None:
    first, second = members
    first.answers[LIST] = listed({"ID": "2", "clientURLs": [second.url]})
    second.answers[HEALTH] = answer
    assert [one.healthy for one in gateway.members()] == [healthy]


def test_one_is_taken_out_by_its_number(first: Served, gateway: EtcdGateway) -> None:
    """As text: that is how protocol buffers write numbers of 64 bits in JSON."""
    first.answers[REMOVE] = (200, b"{}")
    gateway.remove(member(10276657743932975437, "cp-2", "https://p2", (), healthy=False))
    assert first.asked == [("POST", REMOVE, first.url, b'{"ID": "10276657743932975437"}')]


@pytest.mark.parametrize(
    ("status", "said", "again"),
    [
        pytest.param(400, b'{"error":"etcdserver: re-configuration failed"}', 0.0, id="for good"),
        pytest.param(503, b"etcdserver: no leader", 1.0, id="for a moment"),
        pytest.param(500, b"\xff" * 301, 0.0, id="in no words"),
    ],
)
def test_a_refusal_of_etcd_is_told_in_its_words(
    first: Served, gateway: EtcdGateway, status: int, said: bytes, again: float
) -> None:
    first.answers[LIST] = (status, said)
    error = failed(gateway)
    assert (error.code, error.retry_after_seconds) == ("ETCD_REFUSED", again)
    words = said.decode("utf-8", "replace")[:300]
    assert error.message == f"expected etcd to accept {LIST}, got status {status}: {words}"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((200, b"<html>"), id="no JSON"),
        pytest.param((200, b"{}"), id="no members"),
        pytest.param((200, b'{"members": 1}'), id="no list of members"),
        pytest.param(listed({"ID": "one"}), id="a member without a number"),
        pytest.param((0, b"no HTTP\r\n\r\n"), id="no HTTP"),
    ],
)
def test_what_is_no_answer_of_etcd_is_none(first: Served, gateway: EtcdGateway, answer: tuple[int, bytes]) -> None:
    first.answers[LIST] = answer
    error = failed(gateway)
    assert (error.code, first.url in error.message) == ("ETCD_UNREACHABLE", True)


@pytest.mark.parametrize(("size", "taken"), [(1 << 20, True), ((1 << 20) + 1, False)], ids=["a mebibyte", "more"])
def test_an_answer_is_bounded(first: Served, gateway: EtcdGateway, size: int, taken: bool) -> None:
    first.answers[LIST] = (200, b'{"members": []'.ljust(size - 1) + b"}")
    if taken:
        assert gateway.members() == ()
    else:
        assert failed(gateway).code == "ETCD_UNREACHABLE"


@pytest.mark.parametrize("url", [NOWHERE, "https://localhost:port", "https://[::1", "https://"])
def test_an_address_where_nobody_is(authority: Authority, url: str) -> None:
    error = failed(EtcdGateway(url, EtcdCredentials.below(authority.directory)))
    assert (error.code, error.message.startswith(f"expected an answer of etcd at {url}: ")) == (
        "ETCD_UNREACHABLE",
        True,
    )


def test_a_member_of_another_ca_is_told_nothing(first: Served, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    other.write("healthcheck-client", "kube-etcd-healthcheck-client")
    error = failed(EtcdGateway(first.url, EtcdCredentials.below(other.directory)))
    assert (error.code, "CERTIFICATE_VERIFY_FAILED" in error.message, first.asked) == ("ETCD_UNREACHABLE", True, [])


def test_files_that_are_none_are_told_as_such(first: Served, tmp_path: Path) -> None:
    error = failed(EtcdGateway(first.url, EtcdCredentials.below(tmp_path)))
    assert (error.code, first.asked) == ("ETCD_UNREACHABLE", [])


def three(first: Served, second: Served, **changes: Any) -> tuple[int, bytes]:
    """Return a list of two that are healthy, and of a third as ``changes`` say."""
    third = {"ID": "3", "name": "cp-3", "peerURLs": ["https://p3"], "clientURLs": [second.url], **changes}
    return listed(
        {"ID": "1", "name": "cp-1", "clientURLs": [first.url]},
        {"ID": "2", "name": "cp-2", "clientURLs": [second.url]},
        third,
    )


def test_members_that_are_all_healthy_are_accepted(members: tuple[Served, Served], gateway: EtcdGateway) -> None:
    members[0].answers[LIST] = three(*members)
    gateway.require_healthy()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"isLearner": True}, "cp-3 is a learner", id="a learner"),
        pytest.param({"clientURLs": [NOWHERE]}, "cp-3 is not healthy", id="no answer"),
        pytest.param({"name": "", "clientURLs": []}, r"never started \(https://p3\) has not started", id="added"),
        pytest.param({"isLearner": True, "clientURLs": []}, "cp-3 has not started", id="an added learner"),
    ],
)
def test_one_that_is_not_healthy_is_named(
    members: tuple[Served, Served], gateway: EtcdGateway, changes: dict[str, Any], told: str
) -> None:
    members[0].answers[LIST] = three(*members, **changes)
    with pytest.raises(KubeadmError, match=told) as caught:
        gateway.require_healthy()
    assert caught.value.code == "ETCD_MEMBER_UNHEALTHY"
    assert "cp-1" not in caught.value.message


def test_all_that_are_not_healthy_are_named(members: tuple[Served, Served], gateway: EtcdGateway) -> None:
    members[0].answers[LIST] = three(*members)
    members[1].answers[HEALTH] = (503, b"{}")
    with pytest.raises(KubeadmError) as caught:
        gateway.require_healthy()
    assert caught.value.message == (
        "expected every member of etcd to be healthy, cp-2 is not healthy; cp-3 is not healthy"
    )


def test_a_member_that_lists_nobody_is_not_healthy(first: Served, gateway: EtcdGateway) -> None:
    first.answers[LIST] = (503, b"no leader")
    with pytest.raises(KubeadmError, match="got status 503: no leader") as caught:
        gateway.require_healthy()
    assert caught.value.code == "ETCD_MEMBER_UNHEALTHY"


def test_the_member_of_a_control_plane_is_the_local_one(authority: Authority, first: Served, tmp_path: Path) -> None:
    paths = KubernetesPaths(root=tmp_path)
    pki = paths.kubernetes / "pki/etcd"
    pki.parent.mkdir(parents=True)
    pki.symlink_to(authority.directory)
    first.answers[LIST] = listed()
    assert EtcdGateway.local(paths, endpoint=first.url).members() == ()
    with pytest.raises(EtcdError, match="at https://127.0.0.1:2379: "):
        EtcdGateway.local(KubernetesPaths(root=tmp_path / "nothing")).members()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def paged(count: int) -> Callable[[bytes], tuple[int, bytes]]:
    """Answer to a range as an etcd with ``count`` keys does, two to a page."""

    def answer(body: bytes) -> tuple[int, bytes]:
        first = base64.b64decode(json.loads(body)["key"])
        left = [key for key in (b"/a/%d" % number for number in range(count)) if key >= first]
        shown = [{"key": text(key), "value": text(b"v" + key)} for key in left[:2]]
        return 200, json.dumps({"kvs": shown, "more": len(left) > 2}).encode()

    return answer


@pytest.mark.parametrize(("count", "pages"), [(0, 1), (1, 1), (2, 1), (3, 2), (5, 3)])
def test_keys_and_values_are_read_page_by_page(first: Served, gateway: EtcdGateway, count: int, pages: int) -> None:
    first.answers[RANGE] = paged(count)
    assert list(gateway.pages(b"/a/", b"/a0")) == [(b"/a/%d" % number, b"v/a/%d" % number) for number in range(count)]
    assert len(first.asked) == pages
    assert [json.loads(one[3])["key"] for one in first.asked[1:2]] == [text(b"/a/1\0")][: pages - 1]
    asked = json.loads(first.asked[0][3])
    assert asked == {"key": text(b"/a/"), "range_end": text(b"/a0"), "limit": "32"}


def test_a_page_without_keys_ends_the_reading(first: Served, gateway: EtcdGateway) -> None:
    first.answers[RANGE] = (200, b'{"more": true}')
    assert list(gateway.pages(b"/a/", b"/a0")) == []


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>",
        b"[]",
        b'{"kvs": [{"key": "!"}]}',
        b'{"kvs": [{"key": ""}]}',
        b'{"kvs": [{"key": "!", "value": "!"}]}',
        b'{"kvs": 3}',
    ],
)
def test_what_holds_no_keys_and_values_is_no_answer(first: Served, gateway: EtcdGateway, answer: bytes) -> None:
    first.answers[RANGE] = (200, answer)
    with pytest.raises(EtcdError) as caught:
        list(gateway.pages(b"/a/", b"/a0"))
    assert (caught.value.code, first.url in caught.value.message) == ("ETCD_UNREACHABLE", True)


@pytest.mark.parametrize(("size", "taken"), [(64 << 20, True), ((64 << 20) + 1, False)], ids=["64 MiB", "more"])
def test_a_page_is_bounded(first: Served, gateway: EtcdGateway, size: int, taken: bool) -> None:
    first.answers[RANGE] = (200, b'{"kvs": []'.ljust(size - 1) + b"}")
    if taken:
        assert list(gateway.pages(b"/a/", b"/a0")) == []
    else:
        with pytest.raises(EtcdError) as caught:
            list(gateway.pages(b"/a/", b"/a0"))
        assert caught.value.code == "ETCD_UNREACHABLE"


STATUS = "/v3/maintenance/status"


def test_a_member_says_at_which_revision_it_is(first: Served, gateway: EtcdGateway) -> None:
    first.answers[STATUS] = (200, b'{"header": {"cluster_id": "7", "revision": "1000000041"}, "version": "3.6.6"}')
    assert gateway.revision() == 1_000_000_041
    assert first.asked == [("POST", STATUS, first.url, b"{}")]


@pytest.mark.parametrize("said", [b"{}", b'{"header": {}}', b'{"header": {"revision": "x"}}', b'{"header": 1}', b"[]"])
def test_a_status_without_a_revision_is_no_answer(first: Served, gateway: EtcdGateway, said: bytes) -> None:
    first.answers[STATUS] = (200, said)
    with pytest.raises(EtcdError, match="has no revision") as caught:
        gateway.revision()
    assert caught.value.code == "ETCD_UNREACHABLE"


@pytest.mark.parametrize(("answer", "healthy"), [(WELL, True), ((503, b'{"health":"true"}'), False)])
def test_the_member_of_this_machine_is_asked_whether_it_is_healthy(
    first: Served, gateway: EtcdGateway, answer: tuple[int, bytes], healthy: bool
) -> None:
    first.answers[HEALTH] = answer
    assert gateway.is_healthy() is healthy
    assert first.asked == [("GET", HEALTH, first.url, b"")]
