# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one door to the Kubernetes API: linearizable reads, compare-and-set writes, a watch on Nodes.

A list without resourceVersion is answered from etcd's quorum ("most recent"), never from a stale cache. Whatever goes
wrong becomes an `ApiError`; the caller's decision is then no (design 5).
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from .._deps.kube import client, http_exceptions
from ..errors import ApiError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

GROUP = "attested-kubernetes.dev"
VERSION = "v1alpha1"
IDENTITIES = "nodeidentities"
PROFILES = "measurementprofiles"

READ_TIMEOUT_SECONDS = 5
_PAGE = 500
_MERGE_PATCH = "application/merge-patch+json"
_CONFLICT = 409
_DENIED = frozenset({401, 403})


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


class Gateway(Protocol):
    """What the rest of the collection asks of the API; objects are dictionaries as in YAML."""

    def objects(self, plural: str, *, where: Mapping[str, str] | None = None) -> tuple[Mapping[str, Any], ...]:
        """Return the objects of a kind as they are now; ``where`` maps selectable fields to the wanted values."""

    def patch_status(self, plural: str, name: str, *, status: Mapping[str, Any], revision: str) -> None:
        """Merge ``status`` into an object that is still at ``revision``, else raise API_CONFLICT."""

    def node_arrivals(self, seconds: int) -> Iterator[frozenset[str]]:
        """Yield the names of all Nodes as they are now, then of each that appears within ``seconds``."""


class ApiGateway:
    """The real gateway; one instance may be used by several threads."""

    def __init__(self, *, server: str, ca_file: Path, credential: Credential) -> None:
        """Keep where the API is; the first call connects."""
        self._server = server
        self._ca_file = ca_file
        self._credential = credential
        self._lock = threading.Lock()
        self._current: tuple[int, Any] | None = None

    def objects(self, plural: str, *, where: Mapping[str, str] | None = None) -> tuple[Mapping[str, Any], ...]:
        """Return objects of a kind, read linearizably; raises API_UNAVAILABLE or API_FORBIDDEN."""
        api = client.CustomObjectsApi(self._client())
        found: list[Mapping[str, Any]] = []
        page, selector = "", ",".join(f"{name}={value}" for name, value in (where or {}).items())
        while True:
            try:
                answer = api.list_cluster_custom_object(
                    GROUP,
                    VERSION,
                    plural,
                    limit=_PAGE,
                    _continue=page,
                    field_selector=selector,
                    _request_timeout=READ_TIMEOUT_SECONDS,
                    _preload_content=False,  # the library's own reading costs several times as much
                )
                document = json.loads(answer.data)
            except (client.ApiException, http_exceptions.HTTPError) as error:
                _translate(error, f"list {plural}")
            found += document["items"]
            page = document["metadata"].get("continue", "")
            if not page:
                return tuple(found)

    def patch_status(self, plural: str, name: str, *, status: Mapping[str, Any], revision: str) -> None:
        """Write the status of an object that nobody changed since ``revision`` (its resourceVersion)."""
        body = {"metadata": {"resourceVersion": revision}, "status": dict(status)}
        try:
            answer = client.CustomObjectsApi(self._client()).patch_cluster_custom_object_status(
                GROUP,
                VERSION,
                plural,
                name,
                body,
                _content_type=_MERGE_PATCH,
                _request_timeout=READ_TIMEOUT_SECONDS,
                _preload_content=False,
            )
            answer.read()  # an answer that nobody reads keeps its connection from the pool
        except (client.ApiException, http_exceptions.HTTPError) as error:
            _translate(error, f"write the status of {plural}/{name}")

    def node_arrivals(self, seconds: int) -> Iterator[frozenset[str]]:
        """Yield the names of all Nodes, then of each new one; raises API_UNAVAILABLE or API_FORBIDDEN."""
        names, revision = self._nodes()
        yield frozenset(names)
        try:
            stream = client.CoreV1Api(self._client()).list_node(
                watch=True,
                resource_version=revision,
                timeout_seconds=seconds,
                _request_timeout=(READ_TIMEOUT_SECONDS, seconds + READ_TIMEOUT_SECONDS),
                _preload_content=False,
            )
            yield from _added(stream)
        except (client.ApiException, http_exceptions.HTTPError) as error:
            _translate(error, "watch nodes")

    def _nodes(self) -> tuple[list[str], str]:
        try:
            answer = client.CoreV1Api(self._client()).list_node(
                _preload_content=False, _request_timeout=READ_TIMEOUT_SECONDS
            )
            document = json.loads(answer.data)
        except (client.ApiException, http_exceptions.HTTPError) as error:
            _translate(error, "list nodes")
        names = [item["metadata"]["name"] for item in document["items"]]
        return names, document["metadata"]["resourceVersion"]

    def _client(self) -> Any:
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
        settings.retries = False
        settings.proxy = None  # the API of this control plane is never behind a proxy, whatever the environment says
        return client.ApiClient(settings)


def _added(stream: Any) -> Iterator[frozenset[str]]:
    buffer = b""
    try:
        for chunk in stream.stream(decode_content=False):
            *lines, buffer = (buffer + chunk).split(b"\n")
            events = [json.loads(line) for line in lines if line.strip()]
            yield from (
                frozenset({event["object"]["metadata"]["name"]}) for event in events if event["type"] == "ADDED"
            )
    finally:
        stream.close()


def _translate(error: Any, what: str) -> NoReturn:
    """Turn what the library raises into the three causes that a caller can tell apart."""
    status = getattr(error, "status", None)
    said = f"{status} {error.reason}" if status else type(error).__name__
    if status == _CONFLICT:
        reason = Reason.API_CONFLICT
    elif status in _DENIED:
        reason = Reason.API_FORBIDDEN
    else:
        reason = Reason.API_UNAVAILABLE
    raise ApiError(f"could not {what}: {said}", reason=reason) from error
