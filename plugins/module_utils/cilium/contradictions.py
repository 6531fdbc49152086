# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where Cilium's values and the cluster's variables cannot both be true."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from ..errors import SiteError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .facts import Cluster, Network

_API_PORT = 6443
_CLUSTER_NAME_LIMIT = 32
_LOOPBACK = "127.0.0.1"


def require_agreement(cluster: Cluster, values: Mapping[str, Any]) -> None:
    """Raise CILIUM_VALUES_CONTRADICT naming every value that cannot be true beside the cluster's variables."""
    problems = [problem for check in _CHECKS for problem in check(cluster, values)]
    if problems:
        raise SiteError("; ".join(problems), reason=Reason.CILIUM_VALUES_CONTRADICT)


def _services(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    replaces = values["kubeProxyReplacement"]
    if replaces and cluster.kube_proxy:
        yield "kubeProxyReplacement is true and attested_kube_proxy as well: two would write the rules of Services"
    if not replaces and not cluster.kube_proxy:
        yield "kubeProxyReplacement is false and attested_kube_proxy as well: nobody would bring Services"


def _api(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    host, port = values["k8sServiceHost"], values["k8sServicePort"]
    if (host, port) == (cluster.api_host, cluster.api_port):
        return
    if host == _LOOPBACK:
        yield from _through_the_proxy(cluster, port)
        return
    yield (
        f"k8sServiceHost and k8sServicePort: expected attested_api_endpoint ({cluster.api_host}, {cluster.api_port}) "
        f"or {_LOOPBACK}, got {host}, {port}"
    )


def _through_the_proxy(cluster: Cluster, port: int) -> Iterator[str]:
    """Compare what loopback leads to on workers and on control planes: Cilium knows one port and one name for TLS."""
    if cluster.api_proxy_port is None:
        yield f"k8sServiceHost {_LOOPBACK}: expected attested_api_proxy, without it workers have no API there"
    elif (port, cluster.api_proxy_port) != (_API_PORT, _API_PORT):
        yield (
            f"k8sServiceHost {_LOOPBACK}: expected k8sServicePort and attested_api_proxy_port both {_API_PORT}, "
            f"where API servers listen, got {port} and {cluster.api_proxy_port}"
        )
    if _LOOPBACK not in cluster.api_extra_sans:
        yield f"k8sServiceHost {_LOOPBACK}: expected it in attested_api_extra_sans, or no certificate is good for it"


def _name(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    name = values["cluster.name"]
    if name != cluster.name and len(cluster.name) <= _CLUSTER_NAME_LIMIT:
        yield f"cluster.name: expected attested_cluster_name ({cluster.name}), got {name}"
    if name == "default" and values["cluster.id"] != 0:
        yield "cluster.name: expected another name than default where cluster.id is not 0"


def _families(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    for version in (4, 6):
        wanted, got = cluster.pod_subnet.version == version, values[f"ipv{version}.enabled"]
        if got != wanted:
            yield f"ipv{version}.enabled: attested_pod_subnet is {cluster.pod_subnet}, got {str(got).lower()}"
    if _overlap(cluster.pod_subnet, cluster.service_subnet):
        yield f"attested_pod_subnet {cluster.pod_subnet} and attested_service_subnet {cluster.service_subnet} overlap"


def _pools(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    """Every pool lies in the Pods' network, and all together have a block for each machine."""
    own = cluster.pod_subnet.version
    if values["ipam.mode"] != "cluster-pool":
        if stray := sorted(name for name in values if name.startswith("ipam.operator.clusterPool")):
            yield f"{', '.join(stray)}: expected ipam.mode cluster-pool with it, got {values['ipam.mode']}"
        return
    pools = [ipaddress.ip_network(text) for text in values.get(f"ipam.operator.clusterPoolIPv{own}PodCIDRList", ())]
    if stray := sorted(name for name in values if name.startswith(f"ipam.operator.clusterPoolIPv{10 - own}")):
        yield f"{', '.join(stray)}: attested_pod_subnet is {cluster.pod_subnet}"
    if outside := [pool for pool in pools if not _inside(pool, cluster.pod_subnet)]:
        yield f"pools {', '.join(map(str, outside))}: expected them in attested_pod_subnet ({cluster.pod_subnet})"
    mask = values[f"ipam.operator.clusterPoolIPv{own}MaskSize"]
    blocks = sum(1 << (mask - pool.prefixlen) for pool in pools if mask >= pool.prefixlen)
    if blocks < cluster.nodes:
        yield f"pools: expected a block of size /{mask} for each of {cluster.nodes} machines, there are {blocks}"


def _routing(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    name = f"ipv{cluster.pod_subnet.version}NativeRoutingCIDR"
    if values["routingMode"] == "native":
        around = values.get(name)
        if around is None or not _inside(cluster.pod_subnet, ipaddress.ip_network(around)):
            yield f"{name}: expected a network around attested_pod_subnet ({cluster.pod_subnet}), got {around}"
    elif values.get("autoDirectNodeRoutes"):
        yield "autoDirectNodeRoutes: expected routingMode native with it, got tunnel"


def _machines(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    """Compare with what nodes of this collection are; the measurement of a kernel is worth what may be loaded later."""
    if values["cni.binPath"] != cluster.cni_bin_dir:
        yield f"cni.binPath: containerd looks for plugins in {cluster.cni_bin_dir}, got {values['cni.binPath']}"
    if values["securityContext.privileged"]:
        yield "securityContext.privileged: expected false, the agent has a list of capabilities"
    for name in ("ciliumAgent", "cleanCiliumState"):
        if "SYS_MODULE" in values[f"securityContext.capabilities.{name}"]:
            yield f"securityContext.capabilities.{name}: with SYS_MODULE a Pod loads kernel code that nobody measured"


def _parts(_cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    if values.get("encryption.nodeEncryption") and not values["encryption.enabled"]:
        yield "encryption.nodeEncryption: expected encryption.enabled with it"
    if values.get("hubble.relay.enabled") and not values["hubble.enabled"]:
        yield "hubble.relay.enabled: expected hubble.enabled with it"
    if values.get("hubble.ui.enabled") and not values.get("hubble.relay.enabled"):
        yield "hubble.ui.enabled: expected hubble.relay.enabled with it"


_CHECKS = (_services, _api, _name, _families, _pools, _routing, _machines, _parts)


def _overlap(one: Network, other: Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _inside(one: Network, other: Network) -> bool:
    return one.version == other.version and other.supernet_of(one)  # type: ignore[arg-type]
