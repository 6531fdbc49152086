# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of control planes: host:port, and the file that lists those that the cluster named last."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..errors import SystemFault, TransportError
from ..reasons import Reason
from ..system import load_json

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ADDRESSES = 64
"""Of control planes in one list."""
MAX_LIST_BYTES = 1 << 14
LIST = "/var/lib/attested-api-endpoint/control-planes.json"
"""What the cluster named last; written by root, read by the proxy."""

_VERSION = 1


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, ``address:port`` or ``[address]:port``; raises ENDPOINT_INVALID."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or joined(host, port) != text.lower():
        raise TransportError(f"expected host:port, got {text[:100]!r}", reason=Reason.ENDPOINT_INVALID)
    return host, port


def joined(host: str, port: int) -> str:
    """Return the one text of a host and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that ``host`` is, or None where it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def can_be_control_plane(address: str) -> bool:
    """Whether a cluster may send us to ``address``: a host of its own, never this machine, a group or the link."""
    found = literal(address)
    return found is not None and not (
        found.is_loopback or found.is_unspecified or found.is_multicast or found.is_link_local
    )


def render_list(addresses: Iterable[str]) -> bytes:
    """Return the file that lists ``addresses`` (host:port)."""
    return json.dumps({"version": _VERSION, "control_planes": sorted(set(addresses))}).encode() + b"\n"


def parse_list(data: bytes) -> tuple[str, ...]:
    """Return the addresses in ``data``, at least one; raises FILE_UNUSABLE."""
    try:
        body = load_json(data)
        found = body["control_planes"]
        if body["version"] != _VERSION or not isinstance(found, list) or not 1 <= len(found) <= MAX_ADDRESSES:
            raise ValueError
        if not all(isinstance(one, str) and can_be_control_plane(parse_address(one)[0]) for one in found):
            raise ValueError
    except (ValueError, KeyError, TypeError, TransportError) as error:
        raise SystemFault("expected a list of control planes, found something else", reason=Reason.FILE_UNUSABLE) from (
            error
        )
    return tuple(dict.fromkeys(found))
