# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway to the Kubernetes API: linearizable reads, compare-and-set writes, watches.

A read without resourceVersion is answered from etcd's quorum ("most recent"), never from a stale cache. Every error is
an `ApiError`, and the caller then refuses.
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
from ..errors import ApiError, visible
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


# Requests to one API server over connections that stay open.
#
# The connections are those of the standard library. The Kubernetes client adds two layers to the same connections,
# which
# use more CPU than the call itself (ADR 0085).

READ_TIMEOUT_SECONDS = 5

_JSON = "application/json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
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
    """One request; ``what`` completes the message "could not …" of an error, ``body`` is sent as JSON.

    ``accept`` is the form of the answer, which is always JSON.
    """

    what: str
    path: str
    method: str = "GET"
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = _JSON
    accept: str = _JSON

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
    headers, body = {"Accept": request.accept}, None
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


GROUP = "attested-kubernetes.dev"
VERSION = "v1alpha1"
ATTEMPTS = "joinattempts"
IDENTITIES = "nodeidentities"
POLICIES = "attestationpolicies"
PROFILES = "measurementprofiles"
RELEASES = "clusterreleases"

_PAGE = 500
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_OURS = f"/apis/{GROUP}/{VERSION}"
_NODES = "/api/v1/nodes"
_CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_SMALL_PAGE = 16
_APPEARED = frozenset({"ADDED", "MODIFIED"})
SERVING_SIGNER = "kubernetes.io/kubelet-serving"


def revision_of(document: Mapping[str, Any]) -> str:
    """Return the object's uid and resourceVersion, which every write changes; raises API_UNAVAILABLE without them."""
    found = document.get("metadata")
    uid, version = (found.get("uid"), found.get("resourceVersion")) if isinstance(found, dict) else (None, None)
    if not (uid and version):
        raise ApiError("expected an object with a uid and a resourceVersion", reason=Reason.API_UNAVAILABLE)
    return f"{uid} {version}"


class Reader(Protocol):
    """Reads objects, which are dictionaries as in YAML."""

    def objects(self, plural: str, *, where: Mapping[str, str] | None = None) -> tuple[Mapping[str, Any], ...]:
        """Return the objects of a kind as they are now; ``where`` maps selectable fields to the wanted values."""


class Gateway(Reader, Protocol):
    """The API calls that the rest of the collection needs."""

    def object(self, plural: str, name: str) -> Mapping[str, Any] | None:
        """Return one object as it is now, or None."""

    def revision(self, plural: str, name: str) -> str:
        """Return the revision of one object as it is now (`revision_of`), or an empty string."""

    def patch_status(self, plural: str, name: str, *, status: Mapping[str, Any], revision: str) -> str:
        """Merge ``status`` into an object that is still at ``revision``, else raise API_CONFLICT.

        Returns the revision that the object has from now on.
        """

    def listing(self, plural: str) -> tuple[tuple[Mapping[str, Any], ...], str]:
        """Return the objects of a kind, and the revision from which `changes` continues."""

    def changes(self, plural: str, *, revision: str, seconds: int) -> Iterator[Mapping[str, Any]]:
        """Yield the changes of a kind after ``revision``, in order, for ``seconds``: ``type`` and ``object``."""

    def node_arrivals(self, seconds: int) -> Iterator[frozenset[str]]:
        """Yield the names of all Nodes as they are now, then of each that appears within ``seconds``."""


class ObjectWriter(Protocol):
    """Writes the key service's own objects, which are dictionaries as in YAML."""

    def create(self, plural: str, document: Mapping[str, Any]) -> str:
        """Create an object and return its uid; raises API_CONFLICT if one of this name exists."""

    def merge(self, plural: str, name: str, document: Mapping[str, Any], *, revision: str) -> None:
        """Merge ``document`` into an object that is still at ``revision``, else raise API_CONFLICT."""

    def delete(self, plural: str, name: str) -> None:
        """Delete an object, if it exists."""

    def record_event(self, event: Mapping[str, Any]) -> None:
        """Create a core Event in its namespace, or update the one of this name."""


class NodeMarker(Protocol):
    """Reads and writes Nodes; the admission policy attested-marks-nodes allows the key service no other writes."""

    def nodes(self) -> tuple[Mapping[str, Any], ...]:
        """Return every Node as it is now."""

    def node(self, name: str) -> Mapping[str, Any] | None:
        """Return one Node as it is now, or None."""

    def set_taints(self, name: str, taints: Sequence[Mapping[str, Any]], *, revision: str) -> None:
        """Replace the taints of a Node that is still at ``revision``, else raise API_CONFLICT."""

    def set_condition(self, name: str, condition: Mapping[str, Any]) -> None:
        """Write the condition of this type on a Node and no other condition."""

    def set_labels(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Set these labels of a Node and no other labels; None removes a label."""

    def record_event(self, event: Mapping[str, Any]) -> None:
        """As `ObjectWriter.record_event`."""


class ConfigMaps(Protocol):
    """Reads and writes the ConfigMaps of the admission policies, in the namespace kube-system."""

    def config_map(self, name: str) -> Mapping[str, Any] | None:
        """Return one ConfigMap as it is now, or None."""

    def merge_config_map(
        self, name: str, data: Mapping[str, str | None], *, annotations: Mapping[str, str], revision: str
    ) -> None:
        """Merge into one that is still at ``revision``, else raise API_CONFLICT; None removes a key."""


class ServingRequests(Protocol):
    """Reads and decides CertificateSigningRequests for kubelet serving certificates, as the RBAC allows."""

    def serving_requests(self, seconds: int) -> Iterator[Mapping[str, Any]]:
        """Yield every request as it is now, then each that appears or changes within ``seconds``."""

    def conclude_request(self, name: str, condition: Mapping[str, Any], *, revision: str) -> None:
        """Write ``condition`` into a request that is still at ``revision``, else raise API_CONFLICT."""


class ApiGateway:
    """The real gateway; one instance may be used by several threads."""

    def __init__(self, *, server: str, ca_file: Path, credential: Credential) -> None:
        """Store the address of the API; the first call connects."""
        self._http = ApiHttp(server=server, ca_file=ca_file, credential=credential)

    def objects(self, plural: str, *, where: Mapping[str, str] | None = None) -> tuple[Mapping[str, Any], ...]:
        """Return objects of a kind, read linearizably; raises API_UNAVAILABLE or API_FORBIDDEN."""
        return self._list(plural, where or {})[0]

    def listing(self, plural: str) -> tuple[tuple[Mapping[str, Any], ...], str]:
        """Return all objects of a kind and the list's revision; raises as `objects` does."""
        return self._list(plural, {})

    def object(self, plural: str, name: str) -> Mapping[str, Any] | None:
        """Return one object, read linearizably, or None; this is the cheapest read."""
        return self._http.find(ApiRequest(what=f"get {plural}/{name}", path=f"{_OURS}/{plural}/{name}"))

    def revision(self, plural: str, name: str) -> str:
        """Return the revision of one object, read linearizably without its content; an empty string without one."""
        path = f"{_OURS}/{plural}/{name}"
        found = self._http.find(ApiRequest(what=f"get {plural}/{name}", path=path, accept=_METADATA_ONLY))
        return "" if found is None else revision_of(found)

    def patch_status(self, plural: str, name: str, *, status: Mapping[str, Any], revision: str) -> str:
        """Merge ``status`` into the object and return its new revision; raises API_CONFLICT if it changed since."""
        body = {"metadata": {"resourceVersion": revision}, "status": dict(status)}
        what = f"write the status of {plural}/{name}"
        written = self._http.call(_patch(what, f"{_OURS}/{plural}/{name}/status", body))
        return str(written["metadata"]["resourceVersion"])

    def create(self, plural: str, document: Mapping[str, Any]) -> str:
        """Create an object and return its uid; raises API_CONFLICT, API_UNAVAILABLE or API_FORBIDDEN."""
        what = f"create {plural}/{document['metadata']['name']}"
        made = self._http.call(ApiRequest(what=what, path=f"{_OURS}/{plural}", method="POST", body=document))
        return str(made["metadata"]["uid"])

    def merge(self, plural: str, name: str, document: Mapping[str, Any], *, revision: str) -> None:
        """Merge ``document`` into an object that is still at ``revision``; raises as `patch_status`."""
        body = {**document, "metadata": {**document.get("metadata", {}), "resourceVersion": revision}}
        self._http.call(_patch(f"write {plural}/{name}", f"{_OURS}/{plural}/{name}", body))

    def delete(self, plural: str, name: str) -> None:
        """Delete an object; a missing object is no error."""
        self._http.find(ApiRequest(what=f"delete {plural}/{name}", path=f"{_OURS}/{plural}/{name}", method="DELETE"))

    def record_event(self, event: Mapping[str, Any]) -> None:
        """Update an Event, or create it: the API server deletes Events after a while."""
        name, path = event["metadata"]["name"], f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        what = f"write the event {name}"
        cleaned = {**event, "message": visible(str(event.get("message", "")))}
        if self._http.find(_patch(what, f"{path}/{name}", cleaned)) is None:
            self._http.call(ApiRequest(what=what, path=path, method="POST", body=cleaned))

    def changes(self, plural: str, *, revision: str, seconds: int) -> Iterator[Mapping[str, Any]]:
        """Yield the changes of a kind; raises API_UNAVAILABLE or API_FORBIDDEN."""
        yield from self._http.events(
            ApiRequest(what=f"watch {plural}", path=f"{_OURS}/{plural}", query=_watch(revision, seconds)),
            seconds=seconds,
        )

    def nodes(self) -> tuple[Mapping[str, Any], ...]:
        """Return every Node, read linearizably; raises API_UNAVAILABLE or API_FORBIDDEN."""
        return tuple(self._http.call(ApiRequest(what="list nodes", path=_NODES))["items"])

    def set_taints(self, name: str, taints: Sequence[Mapping[str, Any]], *, revision: str) -> None:
        """Replace all taints of a Node by compare-and-set, because a merge patch replaces the whole list."""
        body = {"metadata": {"resourceVersion": revision}, "spec": {"taints": list(taints)}}
        self._http.find(_patch(f"taint the node {name}", f"{_NODES}/{name}", body))

    def set_condition(self, name: str, condition: Mapping[str, Any]) -> None:
        """Merge one condition by its type, as the kubelet does: neither changes the other's conditions."""
        body = {"status": {"conditions": [condition]}}
        what = f"write a condition of the node {name}"
        self._http.find(_patch(what, f"{_NODES}/{name}/status", body, content_type=_STRATEGIC_PATCH))

    def set_labels(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Merge labels into those of a Node; None removes a label."""
        body = {"metadata": {"labels": dict(labels)}}
        self._http.find(_patch(f"label the node {name}", f"{_NODES}/{name}", body))

    def node(self, name: str) -> Mapping[str, Any] | None:
        """Return one Node, read linearizably, or None."""
        return self._http.find(ApiRequest(what=f"get the node {name}", path=f"{_NODES}/{name}"))

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return one pod, read linearizably, or None."""
        return self._http.find(
            ApiRequest(what=f"get the pod {name}", path=f"/api/v1/namespaces/{namespace}/pods/{name}")
        )

    def config_map(self, name: str) -> Mapping[str, Any] | None:
        """Return one ConfigMap of kube-system, read linearizably, or None."""
        return self._http.find(ApiRequest(what=f"get the ConfigMap {name}", path=f"{_CONFIG_MAPS}/{name}"))

    def merge_config_map(
        self, name: str, data: Mapping[str, str | None], *, annotations: Mapping[str, str], revision: str
    ) -> None:
        """Merge into a ConfigMap that is still at ``revision``; raises as `patch_status`."""
        metadata = {"resourceVersion": revision, "annotations": dict(annotations)}
        body = {"metadata": metadata, "data": dict(data)}
        self._http.call(_patch(f"write the ConfigMap {name}", f"{_CONFIG_MAPS}/{name}", body))

    def lease(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return one Lease, read linearizably, or None."""
        return self._http.find(ApiRequest(what=f"get the lease {name}", path=f"{_leases(namespace)}/{name}"))

    def create_lease(self, document: Mapping[str, Any]) -> None:
        """Create a Lease; raises API_CONFLICT if one of this name exists."""
        name, path = document["metadata"]["name"], _leases(document["metadata"]["namespace"])
        self._http.call(ApiRequest(what=f"create the lease {name}", path=path, method="POST", body=document))

    def replace_lease(self, document: Mapping[str, Any]) -> None:
        """Replace a Lease that is still at its revision in ``document``; raises as `patch_status`."""
        name, path = document["metadata"]["name"], _leases(document["metadata"]["namespace"])
        self._http.call(ApiRequest(what=f"write the lease {name}", path=f"{path}/{name}", method="PUT", body=document))

    def node_arrivals(self, seconds: int) -> Iterator[frozenset[str]]:
        """Yield the names of all Nodes, then of each new one; raises API_UNAVAILABLE or API_FORBIDDEN."""
        document = self._http.call(ApiRequest(what="list nodes", path=_NODES))
        yield frozenset(item["metadata"]["name"] for item in document["items"])
        query = _watch(document["metadata"]["resourceVersion"], seconds)
        for event in self._http.events(ApiRequest(what="watch nodes", path=_NODES, query=query), seconds=seconds):
            if event["type"] == "ADDED":
                yield frozenset({event["object"]["metadata"]["name"]})

    def serving_requests(self, seconds: int) -> Iterator[Mapping[str, Any]]:
        """Yield requests of the signer for kubelet serving certificates; raises API_UNAVAILABLE or API_FORBIDDEN.

        A node can write a megabyte into each request, so the pages are small.
        """
        query = {"fieldSelector": f"spec.signerName={SERVING_SIGNER}"}
        page = {**query, "limit": str(_SMALL_PAGE)}
        while True:
            document = self._http.call(ApiRequest(what="list certificate requests", path=_REQUESTS, query=page))
            yield from document["items"]
            page["continue"] = document["metadata"].get("continue", "")
            if not page["continue"]:
                break
        query |= _watch(document["metadata"]["resourceVersion"], seconds)
        watch = ApiRequest(what="watch certificate requests", path=_REQUESTS, query=query)
        for event in self._http.events(watch, seconds=seconds):
            if event["type"] in _APPEARED:
                yield event["object"]

    def conclude_request(self, name: str, condition: Mapping[str, Any], *, revision: str) -> None:
        """Write the only condition of a request; a request that was decided meanwhile has another revision."""
        body = {"metadata": {"resourceVersion": revision}, "status": {"conditions": [dict(condition)]}}
        self._http.find(_patch(f"conclude the certificate request {name}", f"{_REQUESTS}/{name}/approval", body))

    def _list(self, plural: str, where: Mapping[str, str]) -> tuple[tuple[Mapping[str, Any], ...], str]:
        found: list[Mapping[str, Any]] = []
        query = {"limit": str(_PAGE)}
        if where:
            query["fieldSelector"] = ",".join(f"{name}={value}" for name, value in where.items())
        while True:
            document = self._http.call(ApiRequest(what=f"list {plural}", path=f"{_OURS}/{plural}", query=query))
            found += document["items"]
            query["continue"] = document["metadata"].get("continue", "")
            if not query["continue"]:
                return tuple(found), document["metadata"]["resourceVersion"]


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def _patch(what: str, path: str, body: Mapping[str, Any], *, content_type: str = _MERGE_PATCH) -> ApiRequest:
    return ApiRequest(what=what, path=path, method="PATCH", body=body, content_type=content_type)


def _watch(revision: str, seconds: int) -> dict[str, str]:
    return {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": revision,
        "timeoutSeconds": str(seconds),
    }
