# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP/1.1 as the API server speaks it: what is sent, what is read in whatever pieces it comes, what is refused."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import MAX_ANSWER_BYTES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_http import (
    ApiRequest,
    Connection,
    Head,
    _Connections,
    _lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1a;x=y\r\n" + b"d" * 26 + b"\r\n0\r\n\r\n"


class Fed(Connection):
    """A connection that reads ``data`` in pieces of ``size``, then its end."""

    def __init__(self, data: bytes, size: int = 1 << 16) -> None:
        self._received = b""
        self._pieces = iter([data[at : at + size] for at in range(0, len(data), size)])

    def _piece(self) -> bytes:
        piece = next(self._pieces, None)
        if piece is None:
            raise ConnectionError("the API server closed the connection")
        return piece

    def answer(self) -> tuple[Head, bytes]:
        head = Head.parse(self._until(b"\r\n\r\n"))
        return head, b"".join(self.body(head))


@pytest.mark.parametrize("size", [1, 2, 7, 1 << 16])
def test_answers_are_read_one_after_the_other_in_whatever_pieces_they_come(size: int) -> None:
    connection = Fed(PLAIN + CHUNKED + PLAIN, size)
    assert [connection.answer()[1] for _unused in range(3)] == [b"{}", b"abc" + b"d" * 26, b"{}"]
    with pytest.raises(ConnectionError):
        connection.answer()


def test_trailers_end_a_body_in_chunks() -> None:
    connection = Fed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nA: b\r\nC: d\r\n\r\n" + PLAIN)
    assert [connection.answer()[1] for _unused in range(2)] == [b"", b"{}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "HTTP/1.1 404 Not Found\r\nContent-Length: 5",
            Head(status=404, reason="Not Found", length=5, lasts=True),
            id="a refusal",
        ),
        pytest.param(
            "HTTP/1.1 200 OK\r\nCONNECTION: Close\r\ncontent-length:  0 ",
            Head(status=200, reason="OK", length=0, lasts=False),
            id="the last answer of its connection",
        ),
        pytest.param(
            "HTTP/1.1 204 No Content", Head(status=204, reason="No Content", length=0, lasts=True), id="no body"
        ),
        pytest.param(
            "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\nContent-Length: 9",
            Head(status=200, reason="", length=None, lasts=True),
            id="chunks count before a length",
        ),
    ],
)
def test_heads(text: str, expected: Head) -> None:
    assert Head.parse(text.encode()) == expected


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", id="another version"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="an answer before the answer"),
        pytest.param(b"HTTP/1.1 OK\r\n\r\n", id="no code"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n{}", id="no length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", id="a negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_ANSWER_BYTES + 1), id="too large"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", id="a chunk of no size"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\n", id="a chunk of a negative size"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: " + b"b" * (1 << 18), id="a head without an end"),
    ],
)
def test_what_is_no_answer(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Fed(answer).answer()


@pytest.mark.parametrize("cut", [10, len(PLAIN) - 1])
def test_an_answer_that_is_cut_off_is_an_error(cut: int) -> None:
    with pytest.raises(ConnectionError):
        Fed(PLAIN[:cut]).answer()


def test_a_request_is_one_piece() -> None:
    request = ApiRequest(what="x", path="/a b/ü?c", query={"q": "1 2"}, method="PATCH", body={"k": "ü"})
    head, _end, body = request.to_bytes("[::1]:6443").partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"PATCH /a%20b/%C3%BC%3Fc?q=1+2 HTTP/1.1",
        b"Host: [::1]:6443",
        b"Accept: application/json",
        b"Content-Type: application/json",
        b"Content-Length: 15",
    ]
    assert body == b'{"k": "\\u00fc"}'


def test_no_name_begins_a_line_of_its_own() -> None:
    request = ApiRequest(what="x", path="/a\r\nX: y", query={"q": "\r\nX: y"}).to_bytes("h")
    assert request.count(b"\r\n") == 4
    assert b"\nX" not in request


def pieces(*parts: bytes) -> Iterator[bytes]:
    yield from parts


def test_events_are_lines_however_they_are_cut() -> None:
    assert list(_lines(pieces(b'{"a"', b": 1}\n\n{", b'"b": 2}\n{"c"'))) == [{"a": 1}, {"b": 2}]


class Plain(Connection):
    """One end of a pair of sockets."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end  # type: ignore[assignment]
        self._received = b""


class Pool(_Connections):
    """Connections of which a test gives the first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 9), None)  # type: ignore[arg-type]
        self.ours, self.theirs = socket.socketpair()
        self.give_back(Plain(self.ours))


def test_a_silent_connection_is_used_again() -> None:
    pool = Pool()
    first = pool.take()
    pool.give_back(first)
    assert pool.take() is first
    with pytest.raises(OSError, match="refused"):
        pool.take()


@pytest.mark.parametrize("said", [b"", b"more than one answer"])
def test_a_connection_that_was_closed_or_says_more_is_not_used(said: bytes) -> None:
    pool = Pool()
    if said:
        pool.theirs.send(said)
    else:
        pool.theirs.close()
    with pytest.raises(OSError, match="refused"):
        pool.take()
    assert pool.ours.fileno() == -1


def test_connections_of_an_old_credential_are_closed() -> None:
    pool, other = Pool(), Pool()
    taken = other.take()
    for one in (pool, other):
        one.retire()
    other.give_back(taken)
    assert [one.ours.fileno() for one in (pool, other)] == [-1, -1]
