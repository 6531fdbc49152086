# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker, or a further control plane: ``kubeadm join`` with the content of a ticket, never with a token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.files import make_directory, read_bytes, write_atomic
from ..result import Step
from .api import Health, KubeconfigNodeReader, LocalHealth, NodeReader, NodeView, wait_ready, wait_registered
from .cluster import pinned, write_patches
from .credential import KubeletCredential, place, render_kubeconfig, require_pair
from .files import place_shared_files, require_shared_files, write_api_server_files
from .operation import MEMBER_OPERATION, Machine, Operation, Plan
from .phases import JOIN_PHASES, MEMBER_PHASES
from .render import ignored_checks, render_join
from .spec import API_PORT, split_endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .spec import KubernetesPaths, NodeSpec


REGISTER_TIMEOUT_SECONDS = 120.0
# These files may exist before kubeadm runs: `Worker.write` writes the kubeconfig.
_WORKER_FILES = ("FileAvailable--etc-kubernetes-kubelet.conf", "FileAvailable--etc-kubernetes-pki-ca.crt")


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
            ignored=(*ignored_checks(node), *_WORKER_FILES),
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


# A further control plane: ``kubeadm join`` with the files of a ticket.
#
# It needs no token and no certificate key. Its kubelet uses the API server of its own machine, as on the first control
# plane (`ControlPlaneKubeletLocalMode`). kubeadm finds the running cluster with a separate discovery file.

# The preflight check fails for a file that `ControlPlaneMember.write` writes.
_MEMBER_FILES = ("FileAvailable--etc-kubernetes-kubelet.conf",)


class ControlPlaneMember:
    """A machine that is or becomes a further control plane."""

    def __init__(
        self, node: NodeSpec, machine: Machine, *, reader: NodeReader | None = None, health: Health | None = None
    ) -> None:
        """Render the configuration; raises OPTION_INVALID and IMAGE_PINS_MALFORMED."""
        self._node = node
        self._machine = machine
        self._reader = reader or KubeconfigNodeReader(machine.paths.kubelet_config)
        self._health = health or LocalHealth(ca=machine.paths.ca, address=node.node_ip)
        self._operation = Operation(
            machine,
            name=MEMBER_OPERATION,
            verb="join",
            table=MEMBER_PHASES,
            config=render_join(pinned(node, machine.paths), paths=machine.paths, control_plane=True),
            ignored=(*ignored_checks(node), *_MEMBER_FILES),
            wait_ready=self._wait_ready,
        )

    def plan(self) -> Plan:
        """Return the plan."""
        return self._operation.plan()

    def write(self, material: JoinMaterial) -> bool:
        """Write the shared files, the credential and both kubeconfigs; return whether anything changed.

        Raises TICKET_MALFORMED, ENCRYPTION_MALFORMED and KUBELET_CREDENTIAL_INVALID before anything is written, and
        FILE_UNUSABLE.
        """
        paths = self._machine.paths
        require_shared_files(material.control_plane_files)
        changed = place_credential(material, self._node, self._machine)
        changed |= place_shared_files(material.control_plane_files, paths)
        make_directory(paths.state, mode=0o700)
        for path, server in (
            (paths.discovery_config, material.api_endpoint),
            (paths.kubelet_config, _local(self._node)),
        ):
            changed |= write_atomic(path, kubelet_kubeconfig(material, self._node, paths, server=server))
        return changed

    def apply(self, todo: Plan) -> tuple[Step, ...]:
        """Run ``todo``, and wait for the API server of this machine."""
        if todo.phases:
            self._operation.require_lock()
            write_api_server_files(self._machine.paths)
            write_patches(self._machine.paths)
        steps = self._operation.apply(todo)
        if todo:
            self._wait_ready()
        return steps

    def confirm(self, *, boot_id: Path) -> NodeView:
        """Wait until the Node object reports this boot; raises NODE_NOT_REGISTERED."""
        return wait_for_node(self._reader, self._node, self._machine, boot_id=boot_id)

    def _wait_ready(self) -> None:
        wait_ready(self._health, clock=self._machine.clock)


def _local(node: NodeSpec) -> str:
    host = f"[{node.node_ip}]" if ":" in node.node_ip else node.node_ip
    return f"{host}:{API_PORT}"


# The first control plane after a reboot: kubeadm makes nothing again, and the kubelet starts.
#
# All files that kubeadm made are on its state disk (docs/adr/0048). Changes since then come with the ticket.


class ReturningFounder:
    """A machine that completed init in an earlier boot."""

    def __init__(
        self, node: NodeSpec, machine: Machine, *, reader: NodeReader | None = None, health: Health | None = None
    ) -> None:
        """Store the collaborators."""
        self._node = node
        self._machine = machine
        self._reader = reader or KubeconfigNodeReader(machine.paths.kubelet_config)
        self._health = health or LocalHealth(ca=machine.paths.ca, address=node.node_ip)

    def plan(self) -> Plan:
        """Return the plan: to start the kubelet, or nothing."""
        return Plan(table=(), start_kubelet=not self._machine.kubelet.is_active())

    def write(self, material: JoinMaterial) -> bool:
        """Write the shared files and the credential of a ticket; return whether anything changed.

        Raises TICKET_MALFORMED, ENCRYPTION_MALFORMED and KUBELET_CREDENTIAL_INVALID before anything is written, and
        FILE_UNUSABLE.
        """
        require_shared_files(material.control_plane_files)
        changed = place_credential(material, self._node, self._machine)
        return place_shared_files(material.control_plane_files, self._machine.paths) or changed

    def apply(self, todo: Plan) -> tuple[Step, ...]:
        """Start the kubelet and wait for the API server of this machine, if the plan is not empty."""
        if not todo:
            return ()
        clock = self._machine.clock
        begun = clock.monotonic()
        self._machine.kubelet.start()
        wait_ready(self._health, clock=clock)
        return (Step(name="kubelet", title="Start the kubelet", seconds=clock.monotonic() - begun),)

    def confirm(self, *, boot_id: Path) -> NodeView:
        """Wait until the Node object reports this boot; raises NODE_NOT_REGISTERED."""
        return wait_for_node(self._reader, self._node, self._machine, boot_id=boot_id)
