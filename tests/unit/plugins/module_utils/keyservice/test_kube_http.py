# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is sent to the API server, what is read of its answers, what is refused, and which connections are kept."""

from __future__ import annotations

import socket
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice import kube_api
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import (
    ApiRequest,
    _ask,
    _Connections,
    _events,
    _whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Exchange = Callable[..., tuple[HTTPResponse, bytes]]

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1,\r\n1b;x=y\r\n" + b" " * 25 + b"2]\r\n0\r\n\r\n"
)
REQUEST = ApiRequest(what="x", path="/api")


class Pair:
    """A connection whose other end is the test."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.theirs.settimeout(5)
        self.connection = HTTPSConnection("::1", 6443)
        self.connection.sock = ours

    def answer(self, data: bytes, request: ApiRequest = REQUEST, *, end: bool = True) -> HTTPResponse:
        """Ask, and be answered with ``data``."""
        self.theirs.sendall(data)
        if end:
            self.theirs.shutdown(socket.SHUT_WR)
        return _ask(self.connection, request, seconds=5)

    def close(self) -> None:
        self.connection.close()
        self.theirs.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    one = Pair()
    yield one
    one.close()


def test_answers_come_one_after_the_other(pair: Pair) -> None:
    bodies = [_whole(pair.answer(one, end=False)) for one in (PLAIN, CHUNKED, PLAIN)]
    assert bodies == [b"{}", b"[1," + b" " * 25 + b"2]", b"{}"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="none"),
        pytest.param(b"SSH-2.0\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 OK\r\n\r\n", id="no code"),
        pytest.param(PLAIN[:40], id="cut off in the head"),
        pytest.param(b"HTTP/1.1 404 Not Found\r\n\r\n", id="no length"),
        pytest.param(PLAIN[:-1], id="cut off in the body"),
        pytest.param(CHUNKED[:-9], id="cut off in a chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", id="a chunk of no size"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: " + b"b" * (1 << 17) + b"\r\n\r\n", id="a head without an end"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(pair: Pair, answer: bytes) -> None:
    with pytest.raises((OSError, HTTPException, ValueError)):
        _whole(pair.answer(answer))


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED])
def test_a_body_is_bounded(pair: Pair, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_api, "MAX_ANSWER_BYTES", 1)
    with pytest.raises(ValueError, match="at most 1 bytes"):
        _whole(pair.answer(answer))


def test_a_request(pair: Pair) -> None:
    request = ApiRequest(what="x", path="/a b/ü?c", query={"q": "1 2"}, method="PATCH", body={"k": "ü"})
    pair.answer(PLAIN, request)
    pair.connection.close()
    head, _end, body = b"".join(iter(lambda: pair.theirs.recv(4096), b"")).partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert first == b"PATCH /a%20b/%C3%BC%3Fc?q=1+2 HTTP/1.1"
    wanted = {b"Host: [::1]:6443", b"Accept: application/json", b"Content-Type: application/json"}
    assert {*wanted, b"Content-Length: 15"} <= {*lines}
    assert body == b'{"k": "\\u00fc"}'


def test_a_request_that_wants_another_form_of_the_answer(pair: Pair) -> None:
    pair.answer(PLAIN, ApiRequest(what="x", path="/", accept="application/json;as=Table"))
    pair.connection.close()
    assert b"\r\nAccept: application/json;as=Table\r\n" in b"".join(iter(lambda: pair.theirs.recv(4096), b""))


def test_no_name_begins_a_line_of_its_own() -> None:
    assert ApiRequest(what="x", path="/a\r\nX: y", query={"q": "\r\nX: y"}).target == "/a%0D%0AX%3A%20y?q=%0D%0AX%3A+y"


def test_events_are_lines_however_they_are_cut(pair: Pair) -> None:
    parts = (b'{"a"', b': 1}\n\n{"b', b'": 2}\n')
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in parts)
    answer = pair.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert list(_events(answer)) == [{"a": 1}, {"b": 2}]


def test_events_that_are_cut_off_are_an_error(pair: Pair) -> None:
    answer = pair.answer(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"a": 1}\n\r\n9\r\n{"a"')
    found: list[Any] = []
    with pytest.raises((OSError, HTTPException, ValueError)):
        found.extend(iter(_events(answer)))
    assert found in ([], [{"a": 1}])


class Pool(_Connections):
    """Connections of which a test gives the first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 9), None)  # type: ignore[arg-type]
        self.pair = Pair()
        self.give_back(self.pair.connection)


def test_a_silent_connection_is_used_again() -> None:
    pool = Pool()
    first = pool.take()
    pool.give_back(first)
    assert pool.take() is first
    assert pool.take() is not first


@pytest.mark.parametrize("said", [b"", b"more than one answer"])
def test_a_connection_that_was_closed_or_says_more_is_not_used(said: bytes) -> None:
    pool = Pool()
    if said:
        pool.pair.theirs.send(said)
    else:
        pool.pair.theirs.close()
    assert pool.take() is not pool.pair.connection
    assert pool.pair.connection.sock is None


def test_connections_of_an_old_credential_are_closed() -> None:
    pool, other = Pool(), Pool()
    taken = other.take()
    for one in (pool, other):
        one.retire()
    other.give_back(taken)
    assert [one.pair.connection.sock for one in (pool, other)] == [None, None]
