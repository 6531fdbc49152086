# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of control planes (host:port), the file that lists them, and the order of dialling."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..core.documents import load_json
from ..errors import SystemFault, TransportError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


MAX_ADDRESSES = 64
"""Upper bound of control planes in one list."""
MAX_LIST_BYTES = 1 << 14
LIST = "/var/lib/attested-api-endpoint/control-planes.json"
"""The control planes that the cluster named last; written by root, read by the proxy."""

_VERSION = 1


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, ``address:port`` or ``[address]:port``.

    Raises ENDPOINT_INVALID.
    """
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or joined(host, port) != text.lower():
        raise TransportError(f"expected host:port, got {text[:100]!r}", reason=Reason.ENDPOINT_INVALID)
    return host, port


def joined(host: str, port: int) -> str:
    """Return host and port as host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return ``host`` as IP address, or None if it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def can_be_control_plane(address: str) -> bool:
    """Return whether ``address`` is an IP address that is not loopback, multicast or link-local."""
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


# Which control plane to dial next. Pure: the caller reports results and passes the time.
#
# the control plane that answered last → the other control planes → those that rest after a failure → the addresses
# behind a name (the caller resolves names)
#
# A rest grows from one second to half a minute with each failure in a row. No control plane is left out: if all rest,
# the control plane whose rest ends first is dialled first.

FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 30.0
_MAX_DOUBLINGS = 5


@dataclass(slots=True)
class _Record:
    failures: int = 0
    rests_until: float = 0.0


@dataclass(slots=True)
class Choice:
    """The addresses (IP address:port) and the failures of each; times are seconds of one monotonic clock.

    ``addresses`` are dialled in this order at first. Shuffle them, so that not all workers start with the same address.
    ``latest`` is the address that answered last. It may be missing in ``addresses`` if it was resolved from a name.
    """

    addresses: tuple[str, ...] = ()
    latest: str | None = None
    _records: dict[str, _Record] = field(default_factory=dict)

    def order(self, now: float) -> tuple[str, ...]:
        """Return the addresses in the order to dial them, without duplicates."""
        known = tuple(dict.fromkeys((self.latest, *self.addresses) if self.latest else self.addresses))
        rested = [address for address in known if self._until(address) <= now]
        resting = sorted((address for address in known if self._until(address) > now), key=self._until)
        return (*rested, *resting)

    def answered(self, address: str) -> None:
        """Record that ``address`` sent data: it is the first choice from now on."""
        self._records.pop(address, None)
        self.latest = address

    def failed(self, address: str, now: float) -> bool:
        """Record a failure: ``address`` rests, longer each time.

        Returns whether it is the first failure in a row.
        """
        record = self._records.setdefault(address, _Record())
        record.rests_until = now + min(FIRST_REST_SECONDS * 2.0**record.failures, LONGEST_REST_SECONDS)
        record.failures = min(record.failures + 1, _MAX_DOUBLINGS)
        return record.failures == 1

    def replace(self, addresses: Sequence[str]) -> None:
        """Replace the addresses unless the new list is empty; the records of addresses in both lists stay."""
        if not addresses:
            return
        self.addresses = tuple(addresses)
        if self.latest not in self.addresses:
            self.latest = None
        self._records = {address: record for address, record in self._records.items() if address in self.addresses}

    def _until(self, address: str) -> float:
        record = self._records.get(address)
        return 0.0 if record is None else record.rests_until
