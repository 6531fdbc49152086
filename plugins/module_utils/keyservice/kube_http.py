# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to one API server over connections that stay open.

The connections are those of the standard library. The Kubernetes client adds two layers to the same connections, which
use more CPU than the call itself (ADR 0085).
"""

from __future__ import annotations

import json
import select
import ssl
import threading
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from urllib.parse import quote, urlencode, urlsplit

from ..core.documents import MAX_ANSWER_BYTES, MAX_ANSWER_LEVELS, load_json
from ..errors import ApiError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

READ_TIMEOUT_SECONDS = 5

_KEPT = 32
_HTTPS_PORT = 443
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
    """Provides a valid credential, and renews a short-lived one."""

    def current(self) -> CredentialFiles:
        """Return the files to use for the next call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request; ``what`` completes the message "could not …" of an error, ``body`` is sent as JSON."""

    what: str
    path: str
    method: str = "GET"
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"

    @property
    def target(self) -> str:
        """The path and the query, percent-encoded."""
        path = quote(self.path)
        return f"{path}?{urlencode(self.query)}" if self.query else path


class _Connections:
    """A pool of connections with one credential; the last returned connection is used first."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        """Store the arguments; a connection is opened when it is needed."""
        self._address = address
        self._context = context
        self._lock = threading.Lock()
        self._kept: list[HTTPSConnection] = []
        self._retired = False

    def take(self) -> HTTPSConnection:
        """Return a connection that no other thread uses; a new one connects with its first request."""
        while True:
            with self._lock:
                kept = self._kept.pop() if self._kept else None
            if kept is None:
                host, port = self._address
                return HTTPSConnection(host, port, timeout=READ_TIMEOUT_SECONDS, context=self._context)
            if _is_silent(kept):
                return kept
            kept.close()

    def give_back(self, connection: HTTPSConnection) -> None:
        """Keep a connection whose last answer was read completely."""
        with self._lock:
            if not self._retired and len(self._kept) < _KEPT:
                self._kept.append(connection)
                return
        connection.close()

    def retire(self) -> None:
        """Close all connections and keep no more, because there is a newer credential."""
        with self._lock:
            self._retired, kept, self._kept = True, self._kept, []
        for connection in kept:
            connection.close()


def _is_silent(connection: HTTPSConnection) -> bool:
    """Return whether no data followed the last answer; any data means that the server closes the connection."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _ask(connection: HTTPSConnection, request: ApiRequest, *, seconds: float) -> HTTPResponse:
    """Send ``request`` and return the answer with its body unread; no wait is longer than ``seconds``."""
    headers, body = {"Accept": "application/json"}, None
    if request.body is not None:
        headers["Content-Type"] = request.content_type
        body = json.dumps(request.body).encode()
    if connection.sock is None:
        connection.connect()
    connection.sock.settimeout(seconds)
    connection.request(request.method, request.target, body=body, headers=headers)
    answer = connection.getresponse()
    if answer.length is None and not answer.chunked:
        raise ValueError("expected an answer with a length or in chunks, got neither")
    return answer


class ApiHttp:
    """The API server at one URL, never behind a proxy; may be used by several threads."""

    def __init__(self, *, server: str, ca_file: Path, credential: Credential) -> None:
        """Store the address of the API; the first request connects."""
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
        """Return the answer, or None if the object does not exist; raises as `call` does."""
        try:
            answer, data = self._exchange(request)
            if answer.status == _NOT_FOUND:
                return None
            _check(answer, request)
            document: dict[str, Any] = _parsed(data)
        except (OSError, HTTPException, ValueError) as error:
            _fail(request, error)
        return document

    def events(self, request: ApiRequest, *, seconds: int) -> Iterator[Mapping[str, Any]]:
        """Yield each event of a watch that the server ends after ``seconds``; raises as `call` does."""
        try:
            connection = self._connections().take()
            try:
                answer = _ask(connection, request, seconds=seconds + READ_TIMEOUT_SECONDS)
                _check(answer, request)
                yield from _events(answer)
            finally:
                connection.close()
        except (OSError, HTTPException, ValueError) as error:
            _fail(request, error)

    def _exchange(self, request: ApiRequest) -> tuple[HTTPResponse, bytes]:
        connections, lasts = self._connections(), False
        connection = connections.take()
        try:
            answer = _ask(connection, request, seconds=READ_TIMEOUT_SECONDS)
            data = _whole(answer)
            lasts = not answer.will_close
        finally:
            if lasts:
                connections.give_back(connection)
            else:
                connection.close()
        return answer, data

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


def _whole(answer: HTTPResponse) -> bytes:
    """Return the body; raises ValueError if it is too large or was cut off."""
    data = answer.read(MAX_ANSWER_BYTES + 1)
    if answer.length or len(data) > MAX_ANSWER_BYTES:
        raise ValueError(f"expected a whole answer of at most {MAX_ANSWER_BYTES} bytes, got {len(data)}")
    return data


def _events(answer: HTTPResponse) -> Iterator[Mapping[str, Any]]:
    """Yield the parsed lines of a body as they arrive."""
    while line := answer.readline(MAX_ANSWER_BYTES + 1):
        if line.strip():
            yield _parsed(line)


def _parsed(data: bytes) -> Any:
    return load_json(data, limit=MAX_ANSWER_BYTES, levels=MAX_ANSWER_LEVELS)


def _check(answer: HTTPResponse, request: ApiRequest) -> None:
    """Raise API_CONFLICT, API_FORBIDDEN or API_UNAVAILABLE for an error status."""
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
