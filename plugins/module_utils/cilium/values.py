# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values that follow from a cluster's variables, and the file that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._deps.yaml import yaml
from .schema import nest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .facts import Cluster

HEADER = "# Written by attested.kubernetes.cilium_values. Change attested_cilium_values, not this file.\n"
MASK_SIZES = {4: 24, 6: 120}
_HARDENED = {
    # systemd has mounted both; each of these would be a container of its own with the rights to mount on the host
    "bpf.autoMount.enabled": False,
    "bpf.root": "/sys/fs/bpf",
    "cgroup.autoMount.enabled": False,
    "cgroup.hostRoot": "/sys/fs/cgroup",
    "encryption.enabled": True,
    "encryption.type": "wireguard",
    # listens on each node and brings certificates of its own
    "hubble.enabled": False,
    # without SYS_MODULE, which the chart gives: no Pod brings code into a kernel that was measured
    "securityContext.capabilities.ciliumAgent": [
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "IPC_LOCK",
        "KILL",
        "NET_ADMIN",
        "NET_RAW",
        "SETGID",
        "SETUID",
        "SYS_ADMIN",
        "SYS_RESOURCE",
    ],
    "securityContext.capabilities.cleanCiliumState": ["NET_ADMIN", "SYS_ADMIN", "SYS_RESOURCE"],
    "securityContext.privileged": False,
}


def complete(cluster: Cluster, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all leaves of the file: what follows from ``cluster``, changed by what the site has ``given``."""
    derived = {
        **_HARDENED,
        "cluster.name": cluster.name,
        "cluster.id": 0,
        "cni.binPath": cluster.cni_bin_dir,
        "cni.confPath": "/etc/cni/net.d",
        "k8sServiceHost": cluster.api_host,
        "k8sServicePort": cluster.api_port,
        "kubeProxyReplacement": not cluster.kube_proxy,
        "operator.replicas": min(cluster.nodes, 2),
        "routingMode": "tunnel",
        "tunnelProtocol": "vxlan",
        **_addresses(cluster, given.get("ipam.mode", "kubernetes")),
    }
    return {**derived, **given}


def render(leaves: Mapping[str, Any]) -> str:
    """Return the file's text; equal leaves give equal text."""
    return HEADER + str(yaml.safe_dump(nest(leaves), sort_keys=False, default_flow_style=False))


def _addresses(cluster: Cluster, mode: str) -> dict[str, Any]:
    """Return whence Pods have their addresses: from their Node, or from a pool of Cilium, which is the same network."""
    version = cluster.pod_subnet.version
    families = {"ipv4.enabled": version == 4, "ipv6.enabled": version == 6, "ipam.mode": mode}  # noqa: PLR2004  # names
    if mode == "kubernetes":
        return {**families, f"k8s.requireIPv{version}PodCIDR": True}
    return {
        **families,
        f"ipam.operator.clusterPoolIPv{version}PodCIDRList": [str(cluster.pod_subnet)],
        f"ipam.operator.clusterPoolIPv{version}MaskSize": MASK_SIZES[version],
    }
