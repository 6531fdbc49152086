# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of Cilium's chart that may stand in the file, and what each may be.

This is not the chart's whole schema: it holds the keys that are written here and those that a site has reason to change
together with them. Names and types were compared with the schema of a chart of about 1.17.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import SiteError
from ..reasons import Reason

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


def _network(name: str, version: int) -> Key:
    return Key(
        name=name, expected=f"an IPv{version} network in CIDR notation", fits=lambda value: _is_network(value, version)
    )


def _networks(name: str, version: int) -> Key:
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
        _networks("ipam.operator.clusterPoolIPv4PodCIDRList", 4),
        _number("ipam.operator.clusterPoolIPv6MaskSize", 1, 128),
        _networks("ipam.operator.clusterPoolIPv6PodCIDRList", 6),
        _flag("ipv4.enabled"),
        _network("ipv4NativeRoutingCIDR", 4),
        _flag("ipv6.enabled"),
        _network("ipv6NativeRoutingCIDR", 6),
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

    Raises CILIUM_VALUE_UNKNOWN or CILIUM_VALUE_INVALID, naming every key that is the former or has the latter.
    """
    leaves = list(_leaves(values, ""))
    unknown = [name for name, _value in leaves if name not in KEYS and name not in _GROUPS]
    if unknown:
        raise SiteError(
            "expected keys of Cilium's chart that are checked here, got " + ", ".join(map(_with_near, unknown)),
            reason=Reason.CILIUM_VALUE_UNKNOWN,
        )
    wrong = [f"{name}: expected {_expected(name)}, got {value!r}" for name, value in leaves if not _fits(name, value)]
    if wrong:
        raise SiteError("; ".join(wrong), reason=Reason.CILIUM_VALUE_INVALID)
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
