# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `cilium_values`: derive, validate and write the values of Cilium's Helm chart."""

from __future__ import annotations

import difflib
import ipaddress
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.yaml import yaml
from ..core.files import read_bytes, write_atomic
from ..errors import SiteError
from ..reasons import Reason
from ..result import Diff, Result
from .spec import IPV4, IPV6, parse_networks

if TYPE_CHECKING:
    from .spec import Network

# The cluster settings that the Pod network has to match.

_ENDPOINT = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\s\[\]]+):(?P<port>[0-9]{1,5})")
_PORTS = range(1, 1 << 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster settings of the site.

    ``pod_subnets``, ``service_subnets``: one network, or one of each address family.
    ``api_proxy_port``: loopback port of the API proxy on each worker, None without the proxy.
    ``nodes``: number of machines in the inventory.
    """

    name: str
    api_host: str
    api_port: int
    pod_subnets: tuple[Network, ...]
    service_subnets: tuple[Network, ...]
    kube_proxy: bool
    nodes: int
    cni_bin_dir: str
    api_proxy_port: int | None = None
    api_extra_sans: tuple[str, ...] = ()


def parse_cluster(params: Mapping[str, Any]) -> Cluster:
    """Return the cluster settings in the module options; raises OPTION_INVALID for the first invalid one."""
    host, port = _endpoint(params["api_endpoint"])
    if params["nodes"] < 1:
        raise _unusable("nodes as a number above 0", params["nodes"])
    return Cluster(
        name=params["cluster_name"],
        api_host=host,
        api_port=port,
        pod_subnets=_networks("pod_subnet", params["pod_subnet"]),
        service_subnets=_networks("service_subnet", params["service_subnet"]),
        kube_proxy=params["kube_proxy"],
        nodes=params["nodes"],
        cni_bin_dir=params["cni_bin_dir"],
        api_proxy_port=params["api_proxy_port"] if params["api_proxy"] else None,
        api_extra_sans=tuple(params["api_extra_sans"]),
    )


def _endpoint(text: str) -> tuple[str, int]:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match["port"]) not in _PORTS:
        raise _unusable("api_endpoint as host:port", text)
    return match["host"].strip("[]"), int(match["port"])


def _networks(name: str, text: str) -> tuple[Network, ...]:
    try:
        return parse_networks(text)
    except ValueError:
        raise _unusable(f"{name} as a network in CIDR notation, or one of each address family", text) from None


def _unusable(expected: str, got: object) -> SiteError:
    return SiteError(f"expected {expected}, got {got!r}", reason=Reason.OPTION_INVALID)


# The supported keys of Cilium's Helm chart and their types.
#
# This is a subset of the chart's schema: the keys that this module sets, and related keys that a site may change.
# Names and types are those of the schema of chart version 1.17 (approximately).

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_CAPABILITY = re.compile(r"[A-Z]+(_[A-Z]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: dotted name, description of valid values, and predicate for them."""

    name: str
    expected: str
    fits: Callable[[Any], bool]


def _flag(name: str) -> Key:
    return Key(name=name, expected="true or false", fits=lambda value: isinstance(value, bool))


def _choice(name: str, *words: str) -> Key:
    return Key(name=name, expected=" or ".join(words), fits=lambda value: isinstance(value, str) and value in words)


def _number(name: str, low: int, high: int) -> Key:
    return Key(name=name, expected=f"a number from {low} to {high}", fits=lambda value: _is_number(value, low, high))


def _pattern(name: str, pattern: re.Pattern[str], expected: str) -> Key:
    return Key(
        name=name,
        expected=expected,
        fits=lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None,
    )


def _path(name: str) -> Key:
    return _pattern(name, re.compile(r"/[\w./-]*"), "an absolute path")


def _network_key(name: str, version: int) -> Key:
    return Key(
        name=name, expected=f"an IPv{version} network in CIDR notation", fits=lambda value: _is_network(value, version)
    )


def _networks_key(name: str, version: int) -> Key:
    return Key(
        name=name,
        expected=f"a list of IPv{version} networks in CIDR notation",
        fits=lambda value: _is_list(value, lambda one: _is_network(one, version)),
    )


def _capabilities(name: str) -> Key:
    return Key(
        name=name,
        expected="a list of capabilities as the chart writes them, NET_ADMIN for example",
        fits=lambda value: _is_list(value, lambda one: isinstance(one, str) and _CAPABILITY.fullmatch(one) is not None),
    )


def _is_number(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_network(value: Any, version: int) -> bool:
    if not isinstance(value, str) or "/" not in value:
        return False
    try:
        return ipaddress.ip_network(value).version == version
    except ValueError:
        return False


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and bool(value) and all(map(fits, value))


KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        _number("MTU", 0, 65535),
        _flag("autoDirectNodeRoutes"),
        _flag("bpf.autoMount.enabled"),
        _flag("bpf.masquerade"),
        _path("bpf.root"),
        _flag("cgroup.autoMount.enabled"),
        _path("cgroup.hostRoot"),
        _number("cluster.id", 0, 255),
        _pattern("cluster.name", _NAME, "at most 32 lower-case letters, digits and dashes"),
        _path("cni.binPath"),
        _path("cni.confPath"),
        _flag("encryption.enabled"),
        _flag("encryption.nodeEncryption"),
        _choice("encryption.type", "wireguard"),
        _flag("hubble.enabled"),
        _flag("hubble.relay.enabled"),
        _flag("hubble.ui.enabled"),
        _choice("ipam.mode", "kubernetes", "cluster-pool"),
        _number("ipam.operator.clusterPoolIPv4MaskSize", 1, 32),
        _networks_key("ipam.operator.clusterPoolIPv4PodCIDRList", 4),
        _number("ipam.operator.clusterPoolIPv6MaskSize", 1, 128),
        _networks_key("ipam.operator.clusterPoolIPv6PodCIDRList", 6),
        _flag("ipv4.enabled"),
        _network_key("ipv4NativeRoutingCIDR", 4),
        _flag("ipv6.enabled"),
        _network_key("ipv6NativeRoutingCIDR", 6),
        _flag("k8s.requireIPv4PodCIDR"),
        _flag("k8s.requireIPv6PodCIDR"),
        _pattern("k8sServiceHost", re.compile(r"[0-9A-Za-z.:-]+"), "a host name or an address"),
        _number("k8sServicePort", 1, 65535),
        _flag("kubeProxyReplacement"),
        _number("operator.replicas", 1, 9),
        _choice("policyEnforcementMode", "default", "always"),
        _choice("routingMode", "tunnel", "native"),
        _capabilities("securityContext.capabilities.ciliumAgent"),
        _capabilities("securityContext.capabilities.cleanCiliumState"),
        _flag("securityContext.privileged"),
        _flag("sysctlfix.enabled"),
        _choice("tunnelProtocol", "vxlan", "geneve"),
    )
}
_GROUPS = frozenset(name[: match.start()] for name in KEYS for match in re.finditer(r"\.", name))


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaf values of ``values`` by dotted key.

    Raises CILIUM_VALUES_INVALID with all unknown keys, else with all invalid values.
    """
    leaves = list(_leaves(values, ""))
    unknown = [name for name, _value in leaves if name not in KEYS and name not in _GROUPS]
    if unknown:
        raise SiteError(
            "expected keys of Cilium's chart that are checked here, got " + ", ".join(map(_with_near, unknown)),
            reason=Reason.CILIUM_VALUES_INVALID,
        )
    wrong = [f"{name}: expected {_expected(name)}, got {value!r}" for name, value in leaves if not _fits(name, value)]
    if wrong:
        raise SiteError("expected usable values: " + "; ".join(wrong), reason=Reason.CILIUM_VALUES_INVALID)
    return dict(leaves)


def nest(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested mapping of flat ``leaves``, with sorted keys."""
    tree: dict[str, Any] = {}
    for name in sorted(leaves):
        *groups, last = name.split(".")
        branch = tree
        for group in groups:
            branch = branch.setdefault(group, {})
        branch[last] = leaves[name]
    return tree


def _leaves(values: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and leaf values of known groups; a key that contains a dot is quoted."""
    for key, value in values.items():
        name = f"{above}{key}" if "." not in str(key) else f"{above}'{key}'"
        if name in _GROUPS and isinstance(value, Mapping):
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def _fits(name: str, value: Any) -> bool:
    return name in KEYS and KEYS[name].fits(value)


def _expected(name: str) -> str:
    return KEYS[name].expected if name in KEYS else "a mapping"


def _with_near(name: str) -> str:
    near = difflib.get_close_matches(name, KEYS, n=1)
    return f"{name} (near it: {near[0]})" if near else name


# The values derived from the cluster settings, and the values file.

HEADER = "# Written by attested.kubernetes.cilium_values. Change attested_cilium_values, not this file.\n"
MASK_SIZES = {4: 24, 6: 120}
_HARDENED = {
    # systemd mounts both; autoMount runs an init container with the right to mount on the host
    "bpf.autoMount.enabled": False,
    "bpf.root": "/sys/fs/bpf",
    "cgroup.autoMount.enabled": False,
    "cgroup.hostRoot": "/sys/fs/cgroup",
    "encryption.enabled": True,
    "encryption.type": "wireguard",
    # Hubble listens on each node and has its own certificates
    "hubble.enabled": False,
    # without SYS_MODULE (a default of the chart): no Pod may load code into the measured kernel
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
    """Return all leaf values: derived from ``cluster`` and overridden by ``given``."""
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
    """Return the YAML text of the file; keys are sorted."""
    return HEADER + str(yaml.safe_dump(nest(leaves), sort_keys=False, default_flow_style=False))


def _addresses(cluster: Cluster, mode: str) -> dict[str, Any]:
    """Return the IPAM values: Pod CIDRs of the Nodes, or Cilium's cluster pool with the Pod subnet."""
    pods = {network.version: str(network) for network in cluster.pod_subnets}
    values: dict[str, Any] = {"ipv4.enabled": IPV4 in pods, "ipv6.enabled": IPV6 in pods, "ipam.mode": mode}
    for version, network in pods.items():
        if mode == "kubernetes":
            values[f"k8s.requireIPv{version}PodCIDR"] = True
        else:
            values[f"ipam.operator.clusterPoolIPv{version}PodCIDRList"] = [network]
            values[f"ipam.operator.clusterPoolIPv{version}MaskSize"] = MASK_SIZES[version]
    return values


# Conflicts between Cilium's values and the cluster settings.

_API_PORT = 6443
_CLUSTER_NAME_LIMIT = 32
_LOOPBACK = "127.0.0.1"


def require_agreement(cluster: Cluster, values: Mapping[str, Any]) -> None:
    """Raise CILIUM_VALUES_INVALID with all values that conflict with the cluster settings."""
    problems = [problem for check in _CHECKS for problem in check(cluster, values)]
    if problems:
        raise SiteError(
            "expected values that fit the cluster: " + "; ".join(problems), reason=Reason.CILIUM_VALUES_INVALID
        )


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
    """Require one port and one TLS name of the API on loopback of workers and control planes."""
    if cluster.api_proxy_port is None:
        yield f"k8sServiceHost {_LOOPBACK}: expected attested_api_proxy, workers need it to reach the API there"
    elif (port, cluster.api_proxy_port) != (_API_PORT, _API_PORT):
        yield (
            f"k8sServiceHost {_LOOPBACK}: expected k8sServicePort and attested_api_proxy_port both {_API_PORT}, "
            f"where API servers listen, got {port} and {cluster.api_proxy_port}"
        )
    if _LOOPBACK not in cluster.api_extra_sans:
        yield f"k8sServiceHost {_LOOPBACK}: expected it in attested_api_extra_sans and so in API certificates"


def _name(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    name = values["cluster.name"]
    if name != cluster.name and len(cluster.name) <= _CLUSTER_NAME_LIMIT:
        yield f"cluster.name: expected attested_cluster_name ({cluster.name}), got {name}"
    if name == "default" and values["cluster.id"] != 0:
        yield "cluster.name: expected another name than default where cluster.id is not 0"


def _families(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    families = {network.version for network in cluster.pod_subnets}
    for version in (IPV4, IPV6):
        got = values[f"ipv{version}.enabled"]
        if got != (version in families):
            yield f"ipv{version}.enabled: attested_pod_subnet is {_listed(cluster)}, got {str(got).lower()}"
    for pods, services in itertools.product(cluster.pod_subnets, cluster.service_subnets):
        if _overlap(pods, services):
            yield f"attested_pod_subnet {pods} and attested_service_subnet {services} overlap"


def _pools(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    """Require pools inside the Pod subnet, with at least one block for each machine."""
    if values["ipam.mode"] != "cluster-pool":
        if stray := sorted(name for name in values if name.startswith("ipam.operator.clusterPool")):
            yield f"{', '.join(stray)}: expected ipam.mode cluster-pool with it, got {values['ipam.mode']}"
        return
    families = {network.version for network in cluster.pod_subnets}
    strange = tuple(f"ipam.operator.clusterPoolIPv{version}" for version in (IPV4, IPV6) if version not in families)
    if stray := sorted(name for name in values if name.startswith(strange)):
        yield f"{', '.join(stray)}: attested_pod_subnet is {_listed(cluster)}"
    for pods in cluster.pod_subnets:
        yield from _pools_in(pods, cluster.nodes, values)


def _pools_in(pods: Network, nodes: int, values: Mapping[str, Any]) -> Iterator[str]:
    name = f"ipam.operator.clusterPoolIPv{pods.version}"
    pools = [ipaddress.ip_network(text) for text in values.get(f"{name}PodCIDRList", ())]
    if outside := [pool for pool in pools if not _inside(pool, pods)]:
        yield f"pools {', '.join(map(str, outside))}: expected them in attested_pod_subnet ({pods})"
    mask = values[f"{name}MaskSize"]
    blocks = sum(1 << (mask - pool.prefixlen) for pool in pools if mask >= pool.prefixlen)
    if blocks < nodes:
        yield f"pools: expected a block of size /{mask} for each of {nodes} machines, there are {blocks}"


def _routing(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    if values["routingMode"] != "native":
        if values.get("autoDirectNodeRoutes"):
            yield "autoDirectNodeRoutes: expected routingMode native with it, got tunnel"
        return
    for pods in cluster.pod_subnets:
        name = f"ipv{pods.version}NativeRoutingCIDR"
        around = values.get(name)
        if around is None or not _inside(pods, ipaddress.ip_network(around)):
            yield f"{name}: expected a network around attested_pod_subnet ({pods}), got {around}"


def _machines(cluster: Cluster, values: Mapping[str, Any]) -> Iterator[str]:
    """Require the nodes' CNI directory, and an agent that cannot load kernel modules."""
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


def _listed(cluster: Cluster) -> str:
    return ",".join(map(str, cluster.pod_subnets))


def _overlap(one: Network, other: Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _inside(one: Network, other: Network) -> bool:
    return one.version == other.version and other.supernet_of(one)  # type: ignore[arg-type]


_MODE = 0o644


def run_values(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Write the values file; raises OPTION_INVALID and CILIUM_* before it writes anything."""
    cluster, path = parse_cluster(params), Path(params["path"])
    leaves = complete(cluster, flatten(params["values"]))
    flatten(nest(leaves))  # validate the derived values as well
    require_agreement(cluster, leaves)
    before, after = _found(path), render(leaves)
    if before != after and not check_mode:
        write_atomic(path, after.encode(), mode=_MODE)
    return Result(
        changed=before != after,
        values={"path": str(path), "values": nest(leaves)},
        diff=Diff(before=before, after=after, header=str(path)),
    )


def _found(path: Path) -> str:
    """Return the current text, or an empty one; raises CILIUM_FILE_FOREIGN without the header."""
    if not path.exists():
        return ""
    text = read_bytes(path).decode(errors="replace")
    if not text.startswith(HEADER):
        raise SiteError(
            f"expected {path} to be absent or of this collection, found another's", reason=Reason.CILIUM_FILE_FOREIGN
        )
    return text
