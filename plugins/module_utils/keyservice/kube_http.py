# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to one API server over connections that stay open.

The connections, TLS and sending are the Kubernetes client's; only its generated layer above is left out: it cost half
of our CPU a call (0.9 of 1.8 ms), and all that it knows of our kinds is that they are JSON.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from urllib.parse import urlencode

from .._deps.kube import client, http_exceptions, rest
from ..core.documents import MAX_ANSWER_BYTES, MAX_ANSWER_LEVELS, load_json
from ..errors import ApiError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

READ_TIMEOUT_SECONDS = 5

_CONNECTIONS = 32
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
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


class ApiHttp:
    """The API server at one URL, never behind a proxy; may be used by several threads."""

    def __init__(self, *, server: str, ca_file: Path, credential: Credential) -> None:
        """Keep where the API is; the first request connects."""
        self._server = server
        self._ca_file = ca_file
        self._credential = credential
        self._lock = threading.Lock()
        self._current: tuple[int, Any] | None = None

    def call(self, request: ApiRequest) -> dict[str, Any]:
        """Return the answer; raises API_CONFLICT, API_FORBIDDEN, API_UNAVAILABLE."""
        found = self.find(request)
        if found is None:
            raise ApiError(f"could not {request.what}: 404 Not Found", reason=Reason.API_UNAVAILABLE)
        return found

    def find(self, request: ApiRequest) -> dict[str, Any] | None:
        """Return the answer, or None where there is no such object; raises as `call` does."""
        try:
            answer = self._send(request, read_seconds=READ_TIMEOUT_SECONDS)
            data = answer.read()  # an answer that nobody reads keeps its connection from the pool
            if answer.status == _NOT_FOUND:
                return None
            _check(answer, request)
            document: dict[str, Any] = _parsed(data)
        except (client.ApiException, http_exceptions.HTTPError, ValueError) as error:
            _fail(request, error)
        return document

    def events(self, request: ApiRequest, *, seconds: int) -> Iterator[Mapping[str, Any]]:
        """Yield each event of a watch that the server ends after ``seconds``; raises as `call` does."""
        try:
            answer = self._send(request, read_seconds=seconds + READ_TIMEOUT_SECONDS)
            _check(answer, request)
            yield from _lines(answer.response)
        except (client.ApiException, http_exceptions.HTTPError, ValueError) as error:
            _fail(request, error)

    def _send(self, request: ApiRequest, *, read_seconds: float) -> Any:
        headers = {"Accept": "application/json"}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        return self._connections().request(
            request.method,
            self._server + request.target,
            headers=headers,
            body=request.body,
            _request_timeout=(READ_TIMEOUT_SECONDS, read_seconds),
        )

    def _connections(self) -> Any:
        files = self._credential.current()
        with self._lock:
            if self._current is None or self._current[0] != files.serial:
                self._current = (files.serial, self._connect(files))
            return self._current[1]

    def _connect(self, files: CredentialFiles) -> Any:
        settings = client.Configuration(host=self._server)
        settings.ssl_ca_cert = str(self._ca_file)
        settings.cert_file = str(files.certificate)
        settings.key_file = str(files.private_key)
        settings.connection_pool_maxsize = _CONNECTIONS
        settings.retries = False
        settings.client_go_retries = False
        settings.proxy = None  # the API of this control plane is never behind a proxy, whatever the environment says
        return rest.RESTClientObject(settings)


def _lines(stream: Any) -> Iterator[Mapping[str, Any]]:
    buffer = b""
    try:
        for chunk in stream.stream(decode_content=False):
            *lines, buffer = (buffer + chunk).split(b"\n")
            yield from (_parsed(line) for line in lines if line.strip())
    finally:
        stream.close()


def _parsed(data: bytes) -> Any:
    return load_json(data, limit=MAX_ANSWER_BYTES, levels=MAX_ANSWER_LEVELS)


def _check(answer: Any, request: ApiRequest) -> None:
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
