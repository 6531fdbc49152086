# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Client of the API server with the kubelet's credential: reads its Node and writes conditions of it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from ..core.documents import MAX_ANSWER_LEVELS, load_document, load_json
from ..core.files import read_bytes
from ..errors import KubeadmError
from ..reasons import Reason
from .spec import API_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..core.host import Clock

_TIMEOUT_SECONDS = 5.0
_POLL_SECONDS = 0.1
_READY_POLL_SECONDS = 0.2
READY_TIMEOUT_SECONDS = 240.0
_LIMIT = 1 << 22
_NODES = "/api/v1/nodes"
_READ = {"Accept": "application/json"}
_PATCH = {**_READ, "Content-Type": "application/strategic-merge-patch+json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """The fields of a Node object that this collection reads.

    ``boot_id`` and ``kubelet_version`` are the values that the kubelet reported last. ``reported`` is the last
    heartbeat of the condition Ready, as the API writes it (UTC); empty if there is none.
    """

    name: str
    boot_id: str
    ready: bool
    pod_subnet: str = ""
    kubelet_version: str = ""
    reported: str = ""


class NodeReader(Protocol):
    """Reads one Node object."""

    def node(self, name: str) -> NodeView | None:
        """Return the object, or None if it does not exist.

        Raises API_UNREACHABLE, KUBELET_CREDENTIAL_REFUSED.
        """


class Health(Protocol):
    """Checks whether an API server is ready."""

    def is_ready(self) -> bool:
        """Return whether the server is ready now; an unreachable server is not ready."""


class LocalHealth:
    """Reads the health of this machine's API server without a credential."""

    def __init__(self, *, ca: Path, address: str) -> None:
        """Store the path of the CA certificate and the address that the server listens on."""
        self._ca = ca
        self._address = address

    def is_ready(self) -> bool:
        """Return whether /readyz returns status 200."""
        try:
            context = ssl.create_default_context(cafile=str(self._ca))
            connection = http.client.HTTPSConnection(self._address, API_PORT, timeout=_TIMEOUT_SECONDS, context=context)
            try:
                connection.request("GET", "/readyz")
                return connection.getresponse().status == http.client.OK
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    host: str
    port: int
    ca: str
    certificate: str
    key: str
    name: str


class _Connection(http.client.HTTPSConnection):
    """A TLS connection that checks the server's certificate against ``name``, not against the dialled address."""

    def __init__(self, server: _Server, context: ssl.SSLContext) -> None:
        """Store the server and the TLS context; `connect` dials."""
        super().__init__(server.host, server.port, timeout=_TIMEOUT_SECONDS, context=context)
        self._name = server.name
        self._tls = context

    def connect(self) -> None:
        """Connect; raises `ssl.SSLError` if the certificate is not valid for the server's name."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


class KubeconfigNodeReader:
    """Reads with a kubeconfig that names a credential file, as the kubelet's kubeconfig does."""

    def __init__(self, kubeconfig: Path, *, credential: Path | None = None) -> None:
        """Store the path. The file is read at each call, because a renewal replaces the credential.

        ``credential`` is a PEM file with certificate and key to use instead of the files that the kubeconfig names.
        """
        self._path = kubeconfig
        self._credential = credential

    def node(self, name: str) -> NodeView | None:
        """Return Node ``name``."""
        body = self._read(f"{_NODES}/{name}", f"Node {name}")
        return None if body is None else _view(body)

    def api_servers(self) -> tuple[str, ...]:
        """Return host:port of each API server from the endpoints of the Service default/kubernetes.

        The API servers maintain these endpoints. Raises API_UNREACHABLE, KUBELET_CREDENTIAL_REFUSED.
        """
        body = self._read("/api/v1/namespaces/default/endpoints/kubernetes", "the endpoints of Service kubernetes")
        return () if body is None else _api_servers(body)

    def _read(self, path: str, what: str) -> bytes | None:
        """Return the object at ``path``, or None if it does not exist."""
        return _checked(*self._request("GET", path), verb="read", what=what)

    def _request(self, method: str, path: str, *, patch: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        server = _server(read_bytes(self._path, limit=_LIMIT))
        try:
            context = ssl.create_default_context(cadata=server.ca)
            context.load_cert_chain(self._credential or server.certificate, self._credential or server.key)
            connection = _Connection(server, context)
            try:
                body = None if patch is None else json.dumps(patch)
                connection.request(method, path, body=body, headers=_READ if body is None else _PATCH)
                answer = connection.getresponse()
                return answer.status, answer.read(_LIMIT)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise KubeadmError(
                f"expected an answer of the API server at {server.host}:{server.port}: {error}",
                reason=Reason.API_UNREACHABLE,
            ) from error


class KubeconfigNodeWriter(KubeconfigNodeReader):
    """Reads and writes the conditions of the kubelet's own Node.

    The API server refuses writes to other Nodes.
    """

    def conditions(self, name: str) -> tuple[Mapping[str, Any], ...] | None:
        """Return the conditions of Node ``name``, or None if the Node does not exist; raises as `node` does."""
        body = self._read(f"{_NODES}/{name}", f"Node {name}")
        return None if body is None else _conditions(body)

    def set_condition(self, name: str, condition: Mapping[str, Any]) -> None:
        """Merge one condition by its type into the status of Node ``name``, as the kubelet does.

        Raises as `node` does. A Node that was deleted in the meantime is no error.
        """
        patch = {"status": {"conditions": [condition]}}
        _checked(*self._request("PATCH", f"{_NODES}/{name}/status", patch=patch), verb="write", what=f"Node {name}")


def _checked(status: int, body: bytes, *, verb: str, what: str) -> bytes | None:
    """Return the body of a response, or None if the object does not exist."""
    if status == http.client.NOT_FOUND:
        return None
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise KubeadmError(
            f"expected an API server that lets the kubelet's certificate {verb} {what}, got status {status}",
            reason=Reason.KUBELET_CREDENTIAL_REFUSED,
        )
    if status != http.client.OK:
        raise KubeadmError(f"expected {what}, got status {status} from the API server", reason=Reason.API_UNREACHABLE)
    return body


def wait_ready(health: Health, *, clock: Clock, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> None:
    """Wait until the API server of this machine is ready; raises API_UNREACHABLE."""
    deadline = clock.monotonic() + timeout_seconds
    while not health.is_ready():
        if clock.monotonic() > deadline:
            raise KubeadmError(
                f"expected the API server to be ready within {timeout_seconds:g} s", reason=Reason.API_UNREACHABLE
            )
        clock.sleep(_READY_POLL_SECONDS)


def wait_registered(reader: NodeReader, name: str, *, boot_id: str, clock: Clock, timeout_seconds: float) -> NodeView:
    """Wait until Node ``name`` reports the boot ``boot_id`` (another boot is stale).

    Raises NODE_NOT_REGISTERED.
    """
    deadline = clock.monotonic() + timeout_seconds
    last = "there is none"
    while True:
        try:
            found = reader.node(name)
            if found is not None and found.boot_id == boot_id:
                return found
            last = "there is none" if found is None else "it reports an earlier boot"
        except KubeadmError as error:
            last = error.message
        if clock.monotonic() > deadline:
            raise KubeadmError(
                f"expected Node {name} within {timeout_seconds:g} s: {last}", reason=Reason.NODE_NOT_REGISTERED
            )
        clock.sleep(_POLL_SECONDS)


def _view(body: bytes) -> NodeView:
    try:
        node: dict[str, Any] = load_json(body, limit=_LIMIT, levels=MAX_ANSWER_LEVELS)
        conditions = node["status"].get("conditions", [])
        information = node["status"].get("nodeInfo", {})
        return NodeView(
            name=node["metadata"]["name"],
            boot_id=information.get("bootID", ""),
            ready=any(one["type"] == "Ready" and one["status"] == "True" for one in conditions),
            reported=next((str(one.get("lastHeartbeatTime", "")) for one in conditions if one["type"] == "Ready"), ""),
            pod_subnet=str(node.get("spec", {}).get("podCIDR") or ""),
            kubelet_version=str(information.get("kubeletVersion", "")).removeprefix("v"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise KubeadmError("expected a Node object from the API server", reason=Reason.API_UNREACHABLE) from error


def _conditions(body: bytes) -> tuple[Mapping[str, Any], ...]:
    try:
        found = load_json(body, limit=_LIMIT, levels=MAX_ANSWER_LEVELS)["status"].get("conditions") or []
        return tuple({"type": one["type"], **one} for one in found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KubeadmError("expected a Node object from the API server", reason=Reason.API_UNREACHABLE) from error


def _api_servers(body: bytes) -> tuple[str, ...]:
    try:
        pairs = [
            (str(ip_address(address["ip"])), int(port["port"]))
            for subset in load_json(body, limit=_LIMIT, levels=MAX_ANSWER_LEVELS).get("subsets") or []
            for address in subset.get("addresses") or []
            for port in subset["ports"]
            if port.get("name", "https") == "https"
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KubeadmError("expected Endpoints from the API server", reason=Reason.API_UNREACHABLE) from error
    return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in pairs)


def _server(kubeconfig: bytes) -> _Server:
    try:
        config: dict[str, Any] = load_document(kubeconfig)
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        address = urlsplit(cluster["server"])
        return _Server(
            host=str(address.hostname),
            port=address.port or 443,
            ca=base64.b64decode(cluster["certificate-authority-data"], validate=True).decode("ascii"),
            certificate=user["client-certificate"],
            key=user["client-key"],
            name=str(cluster.get("tls-server-name") or address.hostname),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise KubeadmError(
            "expected the kubelet's kubeconfig, found something else", reason=Reason.KUBECONFIG_MALFORMED
        ) from error
