# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of values in the admin's site: checked as a whole, then written."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from .._deps.yaml import yaml
from ..core.files import read_bytes, write_atomic
from ..errors import SiteError
from ..reasons import Reason
from ..result import Diff, Result

# What the site says of its cluster, as far as a network for Pods has to agree with it.

Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"
_ENDPOINT = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\s\[\]]+):(?P<port>[0-9]{1,5})")
_PORTS = range(1, 1 << 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster's variables.

    ``api_proxy_port`` is the loopback port of each worker that leads to the API, None where workers have none.
    ``nodes`` is how many machines the inventory names.
    """

    name: str
    api_host: str
    api_port: int
    pod_subnet: Network
    service_subnet: Network
    kube_proxy: bool
    nodes: int
    cni_bin_dir: str
    api_proxy_port: int | None = None
    api_extra_sans: tuple[str, ...] = ()


def parse_cluster(params: Mapping[str, Any]) -> Cluster:
    """Return the options of a module as facts; raises OPTION_INVALID naming the first that cannot be meant."""
    host, port = _endpoint(params["api_endpoint"])
    if params["nodes"] < 1:
        raise _unusable("nodes as a number above 0", params["nodes"])
    return Cluster(
        name=params["cluster_name"],
        api_host=host,
        api_port=port,
        pod_subnet=_network("pod_subnet", params["pod_subnet"]),
        service_subnet=_network("service_subnet", params["service_subnet"]),
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


def _network(name: str, text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise _unusable(f"{name} as one network in CIDR notation", text) from None


def _unusable(expected: str, got: object) -> SiteError:
    return SiteError(f"expected {expected}, got {got!r}", reason=Reason.OPTION_INVALID)


# The keys of Cilium's chart that may stand in the file, and what each may be.
#
# This is not the chart's whole schema: it holds the keys that are written here and those that a site has reason to
# change together with them. Names and types were compared with the schema of a chart of about 1.17.

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_CAPABILITY = re.compile(r"[A-Z]+(_[A-Z]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: its dotted name, what it may be in words, and whether a value is that."""

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
    """Return the leaves of ``values`` under their dotted names.

    Raises CILIUM_VALUES_INVALID naming every unknown key, else every key with an unusable value.
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
    """Return what `flatten` took apart, keys in the order of the alphabet."""
    tree: dict[str, Any] = {}
    for name in sorted(leaves):
        *groups, last = name.split(".")
        branch = tree
        for group in groups:
            branch = branch.setdefault(group, {})
        branch[last] = leaves[name]
    return tree


def _leaves(values: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    """Go down where a group is known; a key that holds a dot is not the group that it looks like."""
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


# The values that follow from a cluster's variables, and the file that holds them.

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


# Where Cilium's values and the cluster's variables cannot both be true.

_API_PORT = 6443
_CLUSTER_NAME_LIMIT = 32
_LOOPBACK = "127.0.0.1"


def require_agreement(cluster: Cluster, values: Mapping[str, Any]) -> None:
    """Raise CILIUM_VALUES_INVALID naming every value that cannot be true beside the cluster's variables."""
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


_MODE = 0o644


def run_values(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Write the values that follow from the options; raises CILIUM_* before anything was written."""
    cluster, path = parse_cluster(params), Path(params["path"])
    leaves = complete(cluster, flatten(params["values"]))
    flatten(nest(leaves))  # what follows from the variables is held to the same schema
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
    """Return what stands there; raises CILIUM_FILE_FOREIGN for a file that somebody wrote himself."""
    if not path.exists():
        return ""
    text = read_bytes(path).decode(errors="replace")
    if not text.startswith(HEADER):
        raise SiteError(
            f"expected {path} to be absent or of this collection, found another's", reason=Reason.CILIUM_FILE_FOREIGN
        )
    return text
