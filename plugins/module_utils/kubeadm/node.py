# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker: ``kubeadm join`` with the credential of a ticket, never with a token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.files import make_directory, read_bytes, write_atomic
from .api import KubeconfigNodeReader, NodeReader, NodeView, wait_registered
from .credential import KubeletCredential, place, render_kubeconfig, require_pair
from .operation import Machine, Operation
from .phases import JOIN_PHASES
from .render import ignored_checks, render_join
from .spec import split_endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..result import Step
    from .operation import Plan
    from .spec import KubernetesPaths, NodeSpec

REGISTER_TIMEOUT_SECONDS = 120.0
# These files may exist before kubeadm runs: `Worker.write` writes the kubeconfig.
_OWN_FILES = ("FileAvailable--etc-kubernetes-kubelet.conf", "FileAvailable--etc-kubernetes-pki-ca.crt")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMaterial:
    """The parts of a ticket for kubeadm: API endpoint (host:port), CA (PEM), the kubelet's credential.

    ``control_plane_files``: the files that control planes share, by name relative to /etc/kubernetes; empty for a
    worker.
    """

    cluster_name: str
    api_endpoint: str
    ca: bytes
    credential: KubeletCredential
    control_plane_files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


class Worker:
    """A machine that is or becomes a worker."""

    def __init__(self, node: NodeSpec, machine: Machine, *, reader: NodeReader | None = None) -> None:
        """Render the configuration; raises OPTION_INVALID."""
        self._node = node
        self._machine = machine
        self._reader = reader or KubeconfigNodeReader(machine.paths.kubelet_config)
        self._operation = Operation(
            machine,
            name="join",
            table=JOIN_PHASES,
            config=render_join(node, paths=machine.paths),
            ignored=(*ignored_checks(node), *_OWN_FILES),
        )

    def plan(self) -> Plan:
        """Return the plan."""
        return self._operation.plan()

    def write(self, material: JoinMaterial) -> bool:
        """Write credential and kubeconfig; return whether anything changed.

        Raises KUBELET_CREDENTIAL_INVALID.
        """
        changed = place_credential(material, self._node, self._machine)
        paths = self._machine.paths
        server, name = _server(material, self._node)
        config = kubelet_kubeconfig(material, self._node, paths, server=server, tls_server_name=name)
        return write_atomic(paths.kubelet_config, config) or changed

    def apply(self, todo: Plan) -> tuple[Step, ...]:
        """Run ``todo``."""
        return self._operation.apply(todo)

    def confirm(self, *, boot_id: Path) -> NodeView:
        """Wait for the Node object of this boot (the kernel's file ``boot_id``); raises NODE_NOT_REGISTERED."""
        return wait_for_node(self._reader, self._node, self._machine, boot_id=boot_id)


def place_credential(material: JoinMaterial, node: NodeSpec, machine: Machine) -> bool:
    """Write the kubelet's certificate and key; return whether anything changed.

    Raises KUBELET_CREDENTIAL_INVALID.
    """
    require_pair(material.credential, name=node.name)
    make_directory(machine.paths.kubernetes, mode=0o755)
    return place(material.credential, machine.paths, clock=machine.clock)


def kubelet_kubeconfig(
    material: JoinMaterial, node: NodeSpec, paths: KubernetesPaths, *, server: str, tls_server_name: str = ""
) -> bytes:
    """Return this node's kubeconfig for ``server`` (host:port); it names the credential file.

    ``tls_server_name`` as in `render_kubeconfig`.
    """
    return render_kubeconfig(
        server=f"https://{server}",
        ca=material.ca,
        cluster_name=material.cluster_name,
        user=f"system:node:{node.name}",
        credential=paths.kubelet_credential,
        tls_server_name=tls_server_name,
    )


def _server(material: JoinMaterial, node: NodeSpec) -> tuple[str, str]:
    """Return the server that the kubelet dials, and the name in its certificate if a proxy is dialled instead."""
    if not node.api_proxy:
        return material.api_endpoint, ""
    host, _port = split_endpoint(material.api_endpoint)
    return node.api_proxy, host


def wait_for_node(reader: NodeReader, node: NodeSpec, machine: Machine, *, boot_id: Path) -> NodeView:
    """Wait for the Node object of this boot (the kernel's file ``boot_id``); raises NODE_NOT_REGISTERED."""
    return wait_registered(
        reader,
        node.name,
        boot_id=read_bytes(boot_id, limit=64).decode("ascii").strip(),
        clock=machine.clock,
        timeout_seconds=REGISTER_TIMEOUT_SECONDS,
    )
