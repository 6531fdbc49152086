# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to one API server over connections that stay open.

HTTP/1.1 (RFC 9112) over TLS, as much of it as the API server speaks with one client. The Kubernetes client and urllib3
took more than twice the CPU a call, and a quarter of the memory of a key service (ADR 0085).
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from urllib.parse import quote, urlencode, urlsplit

from ..core.documents import MAX_ANSWER_BYTES, MAX_ANSWER_LEVELS, load_json
from ..errors import ApiError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

READ_TIMEOUT_SECONDS = 5

_HEAD_BYTES = 1 << 16
_PIECE_BYTES = 1 << 16
_KEPT = 32
_HTTPS_PORT = 443
_VERSION = "HTTP/1.1"
_OK = 200
_NO_CONTENT = 204
_CONFLICT = 409
_NOT_FOUND = 404
_DENIED = frozenset({401, 403})
_ERRORS = 400


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """A client certificate for the API, as PEM files; ``serial`` changes whenever their content does."""

    certificate: Path
    private_key: Path
    serial: int = 0


class Credential(Protocol):
    """Gives the credential that is good now; a short-lived one renews itself here."""

    def current(self) -> CredentialFiles:
        """Return the files to use for the next call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request; ``what`` completes "could not …" when it fails, ``body`` is sent as JSON."""

    what: str
    path: str
    method: str = "GET"
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"

    @property
    def target(self) -> str:
        """Path and query as they are sent."""
        path = quote(self.path)
        return f"{path}?{urlencode(self.query)}" if self.query else path

    def to_bytes(self, host: str) -> bytes:
        """Return the request as it is sent to ``host``."""
        lines = [f"{self.method} {self.target} {_VERSION}", f"Host: {host}", "Accept: application/json"]
        body = b""
        if self.body is not None:
            body = json.dumps(self.body).encode()
            lines += [f"Content-Type: {self.content_type}", f"Content-Length: {len(body)}"]
        return "\r\n".join((*lines, "", "")).encode("ascii") + body


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What begins an answer; ``length`` of the body is None where it comes in chunks, ``lasts`` says what follows."""

    status: int
    reason: str
    length: int | None
    lasts: bool

    @classmethod
    def parse(cls, data: bytes) -> Head:
        """Return the head in ``data``, its empty line left out; raises ValueError."""
        first, *lines = data.decode("latin-1").split("\r\n")
        version, _space, rest = first.partition(" ")
        code, _space, reason = rest.partition(" ")
        if version != _VERSION or int(code) < _OK:
            raise ValueError(f"expected an answer of {_VERSION}, got {first[:80]!r}")
        fields = {name.lower(): value.strip() for name, _colon, value in (line.partition(":") for line in lines)}
        if fields.get("transfer-encoding", "").lower() == "chunked":
            length = None
        else:
            length = 0 if int(code) == _NO_CONTENT else int(fields.get("content-length", ""))
        return cls(
            status=int(code), reason=reason, length=length, lasts=fields.get("connection", "").lower() != "close"
        )


class Connection:
    """One connection to the API server, for one request at a time; raises OSError and ValueError."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        """Connect to ``address``, whose certificate must be for that host."""
        opened = socket.create_connection(address, timeout=READ_TIMEOUT_SECONDS)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(opened, server_hostname=address[0])
        self._received = b""

    @property
    def is_silent(self) -> bool:
        """Whether nothing came after the last answer; what comes then is the end of the connection."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not self._received and not poll.poll(0)

    def ask(self, request: bytes, *, seconds: float) -> Head:
        """Send ``request`` and return the head of its answer; nothing of it may take longer than ``seconds``."""
        self._socket.settimeout(seconds)
        self._socket.sendall(request)
        return Head.parse(self._until(b"\r\n\r\n"))

    def body(self, head: Head) -> Iterator[bytes]:
        """Yield the body of an answer, all of which must be taken before the next request."""
        if head.length is not None:
            yield self._exactly(head.length)
            return
        while size := int(self._until(b"\r\n").partition(b";")[0], 16):
            yield self._exactly(size + 2)[:size]
        while self._until(b"\r\n"):  # trailers
            pass

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _until(self, end: bytes) -> bytes:
        """Return what comes before ``end``."""
        while (at := self._received.find(end)) < 0:
            if len(self._received) > _HEAD_BYTES:
                raise ValueError(f"expected the end of a line within {_HEAD_BYTES} bytes")
            self._received += self._piece()
        found, self._received = self._received[:at], self._received[at + len(end) :]
        return found

    def _exactly(self, size: int) -> bytes:
        if not 0 <= size <= MAX_ANSWER_BYTES:
            raise ValueError(f"expected at most {MAX_ANSWER_BYTES} bytes, got {size}")
        pieces, missing = [self._received], size - len(self._received)
        while missing > 0:
            pieces.append(self._piece())
            missing -= len(pieces[-1])
        data = b"".join(pieces)
        self._received = data[size:]
        return data[:size]

    def _piece(self) -> bytes:
        piece = self._socket.recv(_PIECE_BYTES)
        if not piece:
            raise ConnectionError("the API server closed the connection")
        return piece


class _Connections:
    """Connections with one credential; those that are silent are used again, the latest first."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        """Connect when it is needed."""
        self._address = address
        self._context = context
        self._lock = threading.Lock()
        self._kept: list[Connection] = []
        self._retired = False

    def take(self) -> Connection:
        """Return a connection that nobody else uses; raises OSError."""
        while True:
            with self._lock:
                kept = self._kept.pop() if self._kept else None
            if kept is None:
                return Connection(self._address, self._context)
            if kept.is_silent:
                return kept
            kept.close()

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose last answer was taken whole."""
        with self._lock:
            if not self._retired and len(self._kept) < _KEPT:
                self._kept.append(connection)
                return
        connection.close()

    def retire(self) -> None:
        """Keep none any more: there is a newer credential."""
        with self._lock:
            self._retired, kept, self._kept = True, self._kept, []
        for connection in kept:
            connection.close()


class ApiHttp:
    """The API server at one URL, never behind a proxy; may be used by several threads."""

    def __init__(self, *, server: str, ca_file: Path, credential: Credential) -> None:
        """Keep where the API is; the first request connects."""
        url = urlsplit(server)
        self._host = url.netloc
        self._address = (url.hostname or "", url.port or _HTTPS_PORT)
        self._ca_file = ca_file
        self._credential = credential
        self._lock = threading.Lock()
        self._current: tuple[int, _Connections] | None = None

    def call(self, request: ApiRequest) -> dict[str, Any]:
        """Return the answer; raises API_CONFLICT, API_FORBIDDEN, API_UNAVAILABLE."""
        found = self.find(request)
        if found is None:
            raise ApiError(f"could not {request.what}: 404 Not Found", reason=Reason.API_UNAVAILABLE)
        return found

    def find(self, request: ApiRequest) -> dict[str, Any] | None:
        """Return the answer, or None where there is no such object; raises as `call` does."""
        try:
            head, data = self._exchange(request)
            if head.status == _NOT_FOUND:
                return None
            _check(head, request)
            document: dict[str, Any] = _parsed(data)
        except (OSError, ValueError) as error:
            _fail(request, error)
        return document

    def events(self, request: ApiRequest, *, seconds: int) -> Iterator[Mapping[str, Any]]:
        """Yield each event of a watch that the server ends after ``seconds``; raises as `call` does."""
        try:
            connection = self._connections().take()
            try:
                head = connection.ask(request.to_bytes(self._host), seconds=seconds + READ_TIMEOUT_SECONDS)
                _check(head, request)
                yield from _lines(connection.body(head))
            finally:
                connection.close()
        except (OSError, ValueError) as error:
            _fail(request, error)

    def _exchange(self, request: ApiRequest) -> tuple[Head, bytes]:
        connections, lasts = self._connections(), False
        connection = connections.take()
        try:
            head = connection.ask(request.to_bytes(self._host), seconds=READ_TIMEOUT_SECONDS)
            data = b"".join(connection.body(head))
            lasts = head.lasts
        finally:
            if lasts:
                connections.give_back(connection)
            else:
                connection.close()
        return head, data

    def _connections(self) -> _Connections:
        files = self._credential.current()
        with self._lock:
            if self._current is None or self._current[0] != files.serial:
                context = ssl.create_default_context(cafile=str(self._ca_file))
                context.load_cert_chain(files.certificate, files.private_key)
                if self._current is not None:
                    self._current[1].retire()
                self._current = (files.serial, _Connections(self._address, context))
            return self._current[1]


def _lines(pieces: Iterator[bytes]) -> Iterator[Mapping[str, Any]]:
    buffer = b""
    for piece in pieces:
        *lines, buffer = (buffer + piece).split(b"\n")
        yield from (_parsed(line) for line in lines if line.strip())


def _parsed(data: bytes) -> Any:
    return load_json(data, limit=MAX_ANSWER_BYTES, levels=MAX_ANSWER_LEVELS)


def _check(answer: Head, request: ApiRequest) -> None:
    """Turn a status into the causes that a caller can tell apart."""
    if answer.status < _ERRORS:
        return
    if answer.status == _CONFLICT:
        reason = Reason.API_CONFLICT
    elif answer.status in _DENIED:
        reason = Reason.API_FORBIDDEN
    else:
        reason = Reason.API_UNAVAILABLE
    raise ApiError(f"could not {request.what}: {answer.status} {answer.reason}", reason=reason)


def _fail(request: ApiRequest, error: Exception) -> NoReturn:
    raise ApiError(f"could not {request.what}: {type(error).__name__}", reason=Reason.API_UNAVAILABLE) from error
