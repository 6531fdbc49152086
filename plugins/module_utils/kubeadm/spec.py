# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a cluster and of a node for kubeadm, and the paths of kubeadm's files."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import KubeadmError
from ..reasons import Reason
from .pod_security import BY_DEFAULT, LEVELS, PodSecurity

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_VERSION = re.compile(r"1\.[0-9]{1,3}\.[0-9]{1,3}")
_ENDPOINT = re.compile(r"(?P<host>[^:\s]+|\[[0-9a-f:]+\]):(?P<port>[0-9]{1,5})")
_NAME_LIMIT = 253
_PORT_LIMIT = 65535

API_PORT = 6443
"""The port of the API server on each control plane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The options of the whole cluster.

    ``kubernetes_version`` without "v", ``api_endpoint`` as host:port, subnets in CIDR notation.
    ``unmanaged_conntrack`` is for machines on which kube-proxy may not set its limits (the lab).
    ``kube_proxy`` is False if the Pod network implements Services itself.
    ``kubelet_serving``: kubelets request serving certificates from the cluster, and API servers verify them.
    ``pod_security``: the Pod Security level and the exempt namespaces.
    """

    kubernetes_version: str
    cluster_name: str
    api_endpoint: str
    pod_subnet: str = "10.244.0.0/16"
    service_subnet: str = "10.96.0.0/16"
    dns_domain: str = "cluster.local"
    extra_sans: tuple[str, ...] = ()
    image_repository: str = ""
    unmanaged_conntrack: bool = False
    kube_proxy: bool = True
    kubelet_serving: bool = True
    pod_security: PodSecurity = BY_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """The options of one node: registered ``name``, ``node_ip``, and the preflight checks to ignore.

    ``allow_cgroup_v1`` is for machines without cgroup v2 (the lab). ``patches`` is the directory of kubeadm's patches,
    empty for none. ``api_proxy`` is host:port of the proxy on this machine that a worker's kubelet uses, empty if the
    kubelet dials the endpoint itself.
    """

    name: str
    node_ip: str
    cri_socket: str = "unix:///run/containerd/containerd.sock"
    ignore_preflight_errors: tuple[str, ...] = ()
    allow_cgroup_v1: bool = False
    patches: str = ""
    api_proxy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesPaths:
    """Files of kubeadm and kubelet below ``root`` ("/" on a machine, a directory in tests)."""

    root: Path = field(default=Path("/"))

    @property
    def kubernetes(self) -> Path:
        """Kubeadm's directory of PKI, kubeconfigs and manifests."""
        return self.root / "etc/kubernetes"

    @property
    def image_pins(self) -> Path:
        """The images, with digests, of the bundle that prepared this machine."""
        return self.root / "etc/attested/images.json"

    @property
    def api_endpoint(self) -> Path:
        """The configuration of the API proxy; it exists only on workers with a proxy."""
        return self.root / "etc/attested/api-endpoint.yml"

    @property
    def kubelet(self) -> Path:
        """The kubelet's directory."""
        return self.root / "var/lib/kubelet"

    @property
    def state(self) -> Path:
        """The directory of the journal and the rendered configuration; it holds no secret."""
        return self.root / "var/lib/attested/kubeadm"

    @property
    def admission_taken(self) -> Path:
        """The file with the SHA-256 of the admission file with which the API server was started."""
        return self.state / "admission.sha256"

    @property
    def site_arguments(self) -> Path:
        """The file with the names of the arguments that the site set for components of this control plane."""
        return self.state / "site-arguments.json"

    @property
    def ca(self) -> Path:
        """The cluster's CA certificate."""
        return self.kubernetes / "pki/ca.crt"

    @property
    def admin_config(self) -> Path:
        """The admin kubeconfig of this control plane."""
        return self.kubernetes / "admin.conf"

    @property
    def super_admin_config(self) -> Path:
        """The kubeconfig of system:masters, which init removes at its end."""
        return self.kubernetes / "super-admin.conf"

    @property
    def kubelet_config(self) -> Path:
        """The kubelet's kubeconfig; on a worker it is also kubeadm's discovery file."""
        return self.kubernetes / "kubelet.conf"

    @property
    def discovery_config(self) -> Path:
        """The kubeconfig with which kubeadm finds the cluster on a further control plane; it embeds no key."""
        return self.state / "discovery.conf"

    @property
    def kubelet_credential(self) -> Path:
        """The link to the PEM file with the kubelet's certificate and key."""
        return self.kubelet / "pki/kubelet-client-current.pem"

    @property
    def lock_marker(self) -> Path:
        """The file that exists while the machine is locked to its cluster."""
        return self.root / "run/attested/locked"


def require_valid(cluster: ClusterSpec, node: NodeSpec) -> None:
    """Raise OPTION_INVALID with every option that kubeadm cannot use."""
    _require_none([*_cluster_problems(cluster), *_node_problems(node)])


def require_valid_node(node: NodeSpec) -> None:
    """Raise OPTION_INVALID with every option of the node that kubeadm cannot use."""
    _require_none(_node_problems(node))


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Return host and port of ``endpoint`` ("host:port"); raises OPTION_INVALID."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or not 0 < int(match["port"]) <= _PORT_LIMIT:
        raise KubeadmError(f"expected an endpoint host:port, got {endpoint!r}", reason=Reason.OPTION_INVALID)
    return match["host"].strip("[]"), int(match["port"])


def is_node_name(name: str) -> bool:
    """Return whether ``name`` is a DNS-1123 subdomain (dots allowed), as the API requires for a node."""
    return len(name) <= _NAME_LIMIT and _NAME.fullmatch(name) is not None


def require_pod_security(pods: PodSecurity) -> None:
    """Raise OPTION_INVALID unless an API server can enforce ``pods``."""
    _require_none(_pod_security_problems(pods))


def _require_none(problems: list[str]) -> None:
    if problems:
        raise KubeadmError("; ".join(problems), reason=Reason.OPTION_INVALID)


def _cluster_problems(cluster: ClusterSpec) -> list[str]:
    problems = []
    if not _VERSION.fullmatch(cluster.kubernetes_version):
        problems.append(f"expected a version such as 1.35.4, got {cluster.kubernetes_version!r}")
    if not is_node_name(cluster.cluster_name):
        problems.append(f"expected a cluster name in lower case, got {cluster.cluster_name!r}")
    if _ENDPOINT.fullmatch(cluster.api_endpoint) is None:
        problems.append(f"expected an API endpoint host:port, got {cluster.api_endpoint!r}")
    for label, subnet in (("pod", cluster.pod_subnet), ("service", cluster.service_subnet)):
        if not _is_network(subnet):
            problems.append(f"expected a {label} subnet in CIDR notation, got {subnet!r}")
    return [*problems, *_pod_security_problems(cluster.pod_security)]


def _pod_security_problems(pods: PodSecurity) -> list[str]:
    problems = [
        f"expected the name of a namespace to exempt, got {name!r}"
        for name in pods.exempt
        if not re.fullmatch(_LABEL, name)
    ]
    if pods.level not in LEVELS:
        problems.append(f"expected one of {', '.join(LEVELS)} as the Pod Security level, got {pods.level!r}")
    return problems


def _node_problems(node: NodeSpec) -> list[str]:
    problems = []
    if not is_node_name(node.name):
        problems.append(f"expected a node name in lower case, got {node.name!r}")
    if not _is_address(node.node_ip):
        problems.append(f"expected an IP address of the node, got {node.node_ip!r}")
    if "all" in (name.lower() for name in node.ignore_preflight_errors):
        problems.append("expected the names of preflight checks to ignore, got 'all'")
    if node.api_proxy and not _is_loopback(node.api_proxy):
        problems.append(f"expected an API proxy on this machine, as 127.0.0.1:6444, got {node.api_proxy!r}")
    return problems


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return "/" in text


def _is_loopback(endpoint: str) -> bool:
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or not 0 < int(match["port"]) <= _PORT_LIMIT:
        return False
    host = match["host"].strip("[]")
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
