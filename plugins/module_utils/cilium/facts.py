# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the site says of its cluster, as far as a network for Pods has to agree with it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import SiteError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

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
