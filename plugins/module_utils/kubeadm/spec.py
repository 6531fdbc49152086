# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a cluster and of a node for kubeadm, and the paths of kubeadm's files."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.documents import load_documents
from ..errors import KubeadmError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable


# The rules of API servers for Pods: the Pod Security level and the exempt namespaces. Pure.
#
# Without a level, a user who may create a Pod in one namespace can read the keys of the machine that runs the Pod.

BASELINE, PRIVILEGED = "baseline", "privileged"
LEVELS = (BASELINE, "restricted", PRIVILEGED)
"""Kubernetes' Pod Security Standards; the last one restricts nothing."""

SYSTEM_NAMESPACE = "kube-system"
PLUGINS = ("DenyServiceExternalIPs", "NodeRestriction")
"""The admission plugins that are enabled in addition to Kubernetes' defaults; PodSecurity is a default."""

_API = "apiserver.config.k8s.io/v1"
_KIND = "AdmissionConfiguration"
_PLUGIN = "PodSecurity"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecurity:
    """The level (of `LEVELS`) of namespaces without own labels, and the ``exempt`` namespaces."""

    level: str = BASELINE
    exempt: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The exempt namespaces, sorted."""
        return tuple(sorted({SYSTEM_NAMESPACE, *self.exempt}))


BY_DEFAULT = PodSecurity()


def admission_configuration(pods: PodSecurity) -> dict[str, Any]:
    """Return the document of kind AdmissionConfiguration."""
    levels = dict.fromkeys(("audit", "enforce", "warn"), pods.level)
    return {
        "apiVersion": _API,
        "kind": _KIND,
        "plugins": [
            {
                "name": _PLUGIN,
                "configuration": {
                    "apiVersion": "pod-security.admission.config.k8s.io/v1",
                    "kind": "PodSecurityConfiguration",
                    "defaults": {**levels, **{f"{mode}-version": "latest" for mode in levels}},
                    "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": list(pods.namespaces)},
                },
            }
        ],
    }


def parse_admission(content: bytes) -> PodSecurity:
    """Parse a file that `admission_configuration` made; raises `ValueError` for any other file."""
    try:
        (document,) = load_documents(content.decode("utf-8"))
        configuration = document["plugins"][0]["configuration"]
        names = configuration["exemptions"]["namespaces"]
        found = PodSecurity(
            level=configuration["defaults"]["enforce"],
            exempt=tuple(name for name in names if name != SYSTEM_NAMESPACE),
        )
        same = document == admission_configuration(found)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(_KIND) from error
    if not same:
        raise ValueError(_KIND)
    return found


Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_VERSION = re.compile(r"1\.[0-9]{1,3}\.[0-9]{1,3}")
_ENDPOINT = re.compile(r"(?P<host>[^:\s]+|\[[0-9a-f:]+\]):(?P<port>[0-9]{1,5})")
_NAME_LIMIT = 253
_PORT_LIMIT = 65535
IPV4, IPV6 = 4, 6
"""The attribute ``version`` of a network."""
_NODE_MASKS = {IPV4: 24, IPV6: 64}
"""The prefix length of a node's Pods, by address family: the defaults of the controller manager."""
_MOST_NODE_BITS, _MOST_SERVICE_BITS, _LEAST_SERVICE_BITS = 16, 20, 4
"""The sizes of these networks that kubeadm accepts."""

API_PORT = 6443
"""The port of the API server on each control plane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The options of the whole cluster.

    ``kubernetes_version`` without "v", ``api_endpoint`` as host:port. Subnets in CIDR notation, of one address family
    or, separated by a comma, of both.
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

    ``second_node_ip`` is its address of the other family in a dual-stack cluster, empty for none.
    ``allow_cgroup_v1`` is for machines without cgroup v2 (the lab). ``patches`` is the directory of kubeadm's patches,
    empty for none. ``api_proxy`` is host:port of the proxy on this machine that a worker's kubelet uses, empty if the
    kubelet dials the endpoint itself.
    """

    name: str
    node_ip: str
    second_node_ip: str = ""
    cri_socket: str = "unix:///run/containerd/containerd.sock"
    ignore_preflight_errors: tuple[str, ...] = ()
    allow_cgroup_v1: bool = False
    patches: str = ""
    api_proxy: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the node, that of the cluster's first family first."""
        return (self.node_ip, self.second_node_ip) if self.second_node_ip else (self.node_ip,)


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
    def audit_webhook_taken(self) -> Path:
        """The file with the SHA-256 of the audit webhook's file with which the API server was started."""
        return self.state / "audit-webhook.sha256"

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
    addresses = address_problems(cluster.pod_subnet, cluster.service_subnet, node.node_ip, node.second_node_ip)
    _require_none([*_cluster_problems(cluster), *addresses, *_node_problems(node)])


def require_valid_node(node: NodeSpec) -> None:
    """Raise OPTION_INVALID with every option of the node that kubeadm cannot use."""
    _require_none([*_node_address_problems(node.node_ip, node.second_node_ip), *_node_problems(node)])


def parse_networks(text: str) -> tuple[Network, ...]:
    """Return the networks of ``text`` in CIDR notation, one, or two of different families separated by a comma.

    Raises ValueError.
    """
    found = []
    for part in text.split(","):
        if "/" not in part:
            raise ValueError(f"{part!r} has no prefix length")
        found.append(ipaddress.ip_network(part))
    families = [network.version for network in found]
    if len(set(families)) != len(families):
        raise ValueError(f"{text!r} has two networks of one family")
    return tuple(found)


def address_problems(pod_subnet: str, service_subnet: str, node_ip: str, second_node_ip: str) -> list[str]:
    """Return what is wrong with a cluster's networks and the addresses of a node; kubeadm accepts them if nothing is.

    Subnets as in `ClusterSpec`, addresses as in `NodeSpec`. Sizes and order of families:
    https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/dual-stack-support/
    """
    problems = [
        *_network_problems("pod", pod_subnet, _pod_room),
        *_network_problems("service", service_subnet, _service_room),
        *_node_address_problems(node_ip, second_node_ip),
    ]
    return problems or _family_problems(pod_subnet, service_subnet, node_ip, second_node_ip)


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
    return [*problems, *_pod_security_problems(cluster.pod_security)]


def _network_problems(label: str, text: str, room: Callable[[Network], str]) -> list[str]:
    try:
        found = parse_networks(text)
    except ValueError:
        return [f"expected a {label} subnet in CIDR notation, or one of each address family with a comma, got {text!r}"]
    return [f"expected the {label} subnet {one} {problem}" for one in found if (problem := room(one))]


def _pod_room(network: Network) -> str:
    """Return what is wrong with the size: a node gets /24 or /64 of it, and there are at most 2**16 of these."""
    mask = _NODE_MASKS[network.version]
    if mask - _MOST_NODE_BITS <= network.prefixlen <= mask:
        return ""
    return f"with a prefix of {mask - _MOST_NODE_BITS} to {mask} bits, since each node gets a /{mask} of it"


def _service_room(network: Network) -> str:
    least, most = (network.max_prefixlen - bits for bits in (_MOST_SERVICE_BITS, _LEAST_SERVICE_BITS))
    return "" if least <= network.prefixlen <= most else f"with a prefix of {least} to {most} bits"


def _family_problems(pod_subnet: str, service_subnet: str, node_ip: str, second_node_ip: str) -> list[str]:
    """Return the problems of address families; all addresses and networks are valid."""
    pods, services = ([one.version for one in parse_networks(text)] for text in (pod_subnet, service_subnet))
    problems = []
    if pods != services:
        problems.append(
            f"expected pod and service subnets of the same address families in the same order, got {pod_subnet} and "
            f"{service_subnet}"
        )
    if ipaddress.ip_address(node_ip).version != services[0]:
        problems.append(f"expected the first subnets in the address family of the node {node_ip}, got IPv{services[0]}")
    if second_node_ip and len(pods) == 1:
        problems.append(f"expected no second address of the node without subnets of its family, got {second_node_ip}")
    return problems


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
    if "all" in (name.lower() for name in node.ignore_preflight_errors):
        problems.append("expected the names of preflight checks to ignore, got 'all'")
    if node.api_proxy and not _is_loopback(node.api_proxy):
        problems.append(f"expected an API proxy on this machine, as 127.0.0.1:6444, got {node.api_proxy!r}")
    return problems


def _node_address_problems(first: str, second: str) -> list[str]:
    if not _is_address(first):
        return [f"expected an IP address of the node, got {first!r}"]
    if second and not _is_of_other_family(second, first):
        return [f"expected a second address of the node of the other family than {first}, got {second!r}"]
    return []


def _is_loopback(endpoint: str) -> bool:
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or not 0 < int(match["port"]) <= _PORT_LIMIT:
        return False
    host = match["host"].strip("[]")
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_of_other_family(second: str, first: str) -> bool:
    return _is_address(second) and ipaddress.ip_address(second).version != ipaddress.ip_address(first).version


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
