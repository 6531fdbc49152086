# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connects the pods of this node as soon as the cluster has given it their addresses; for nodes in one network segment.

A bridge for its own pods. The pods of all others are looked for in the segment, where each node answers for its own
(proxy ARP), so no node has to know of another.

Usage: pods.py NODE-NAME NODE-ADDRESS POD-SUBNET
"""

from __future__ import annotations

import ipaddress
import json
import sys
import time
from pathlib import Path

from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import write_atomic
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api import KubeconfigNodeReader

KUBECONFIG = Path("/etc/kubernetes/kubelet.conf")
CONFLIST = Path("/etc/cni/net.d/10-pods.conflist")
SETTINGS = Path("/proc/sys/net/ipv4/conf")
SOON_SECONDS, LATER_SECONDS = 0.5, 10.0


def main() -> None:
    """Open the way to the pods of others, then follow what the cluster says of this node."""
    name, address, pods = sys.argv[1:]
    link = link_of(address)
    (SETTINGS / link / "proxy_arp").write_text("1\n")
    ip("route", "replace", pods, "dev", link, "scope", "link", "src", address)
    while True:
        subnet = own_subnet(name)
        CONFLIST.parent.mkdir(parents=True, exist_ok=True)
        if subnet and write_atomic(CONFLIST, conflist(subnet), mode=0o644):
            sys.stdout.write(f"pods of this node: {subnet}\n")
            sys.stdout.flush()
        time.sleep(LATER_SECONDS if subnet else SOON_SECONDS)


def own_subnet(name: str) -> str:
    """Return what the cluster has assigned to this node, empty while it is none."""
    try:
        node = KubeconfigNodeReader(KUBECONFIG).node(name) if KUBECONFIG.exists() else None
    except AttestedError:
        return ""  # it is away, or this machine was reset meanwhile
    return str(ipaddress.ip_network(node.pod_subnet)) if node and node.pod_subnet else ""


def conflist(subnet: str) -> bytes:
    """Return the configuration of the bridge (CNI 0.4.0)."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": addresses,
    }
    plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}, indent=2).encode() + b"\n"


def link_of(address: str) -> str:
    """Return the link that has this address."""
    links = json.loads(ip("-j", "address", "show", "to", address))
    return str(next(link["ifname"] for link in links if link.get("addr_info")))


def ip(*words: str) -> bytes:
    """Return what the program ip prints."""
    return SystemRunner().run(["ip", *words]).stdout


if __name__ == "__main__":
    main()
