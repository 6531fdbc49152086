# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The targets that a machine calls: every address of the endpoints that it knows, but for its own addresses.

endpoints of node.yml (names, addresses, balancers) → shuffled → addresses of each, shuffled → not own ones → once each
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Protocol

from ..core.host import shuffled
from ..errors import TransportError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from ipaddress import IPv4Address

    from ..core.host import Random

_MAX_ADDRESSES = 16
"""Addresses of one name: a round over more would take minutes if none of them answers."""
_DISCARD_PORT = 9


class Resolver(Protocol):
    """Resolves names, and recognises addresses of this machine."""

    def addresses(self, host: str) -> tuple[str, ...]:
        """Return the addresses of a name; raises PEER_UNREACHABLE."""

    def is_own(self, address: str) -> bool:
        """Return whether ``address`` is an address of this machine."""


class SystemResolver:
    """The system's resolver, with the system's timeouts, and the kernel's routes."""

    def addresses(self, host: str) -> tuple[str, ...]:
        """Return the addresses that the system's resolver finds, without link-local addresses with a zone."""
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise _unresolved(host, str(why)) from error
        addresses = dict.fromkeys(str(one[4][0]) for one in found)
        return tuple(address for address in addresses if "%" not in address)[:_MAX_ADDRESSES]

    def is_own(self, address: str) -> bool:
        """Return whether the kernel would send to ``address`` from this same address."""
        wanted = ip_address(address)
        if wanted.is_loopback:
            return True
        try:
            return ip_address(own_address(address)) == wanted
        except OSError:
            return False


def own_address(peer: str) -> str:
    """Return the address from which this machine would send to the address ``peer``, without sending.

    Raises OSError if there is no route, ValueError if ``peer`` is no address.
    """
    family = socket.AF_INET6 if isinstance(ip_address(peer), IPv6Address) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, _DISCARD_PORT))
        return str(probe.getsockname()[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One address to call: ``endpoint`` as it was configured, ``dialled`` as host:port with that address.

    ``unresolved`` is set if the endpoint has no address now.
    """

    endpoint: str
    dialled: str
    unresolved: TransportError | None = None

    def __str__(self) -> str:
        """Return the endpoint, and the dialled address if it differs."""
        return self.endpoint if self.dialled == self.endpoint else f"{self.endpoint} at {self.dialled}"


@dataclass(slots=True)
class Favourite:
    """The target whose service decided last; it is tried first in the next round."""

    target: Target | None = None

    def note(self, target: Target, *, decided: bool) -> None:
        """Keep ``target`` if its service decided; drop it if the service did not."""
        if decided:
            self.target = target
        elif self.target is not None and self.target.dialled == target.dialled:
            self.target = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """All targets of ``endpoints`` (host:port), for any number of rounds.

    ``own``: names and addresses of this machine; ``parse`` splits an endpoint; ``resolver`` recognises the other
    addresses of this machine. A loopback address in an endpoint is called, because it means a proxy on this machine.
    """

    endpoints: Sequence[str]
    own: frozenset[str]
    parse: Callable[[str], tuple[str, int]]
    resolver: Resolver
    random: Random
    favourite: Favourite = field(default_factory=Favourite)

    def round(self, *, itself: bool = False) -> Iterator[Target]:
        """Yield each target once: the favourite, then all others in random order.

        A name is resolved only when its turn comes. With ``itself`` this machine's own targets come last, else never.
        Raises ENDPOINT_INVALID.
        """
        seen: set[str] = set()
        ours: list[Target] = []
        for target in self._candidates():
            if target.dialled in seen:
                continue
            seen.add(target.dialled)
            if self._is_own(target):
                ours.append(target)
            else:
                yield target
        yield from ours if itself else ()

    def _candidates(self) -> Iterator[Target]:
        if self.favourite.target is not None:
            yield self.favourite.target
        for endpoint in shuffled(self.random, self.endpoints):
            yield from self._targets_of(endpoint)

    def _targets_of(self, endpoint: str) -> Iterator[Target]:
        host, port = self.parse(endpoint)
        if _address(host) is not None or _plain(host) in self._own_names:
            yield Target(endpoint=endpoint, dialled=_dialled(host, port))
            return
        try:
            found = self.resolver.addresses(host)
        except TransportError as error:
            yield Target(endpoint=endpoint, dialled=endpoint, unresolved=error)
            return
        for address in shuffled(self.random, found):
            yield Target(endpoint=endpoint, dialled=_dialled(address, port))

    @property
    def _own_names(self) -> frozenset[str]:
        return frozenset(_plain(name) for name in self.own)

    def _is_own(self, target: Target) -> bool:
        if target.unresolved is not None:
            return False
        host = _plain(self.parse(target.dialled)[0])
        address = _address(host)
        if address is None or host in self._own_names:
            return True  # only names of this machine are left unresolved here
        return not (address.is_loopback and self._is_written_out(target)) and self.resolver.is_own(host)

    def _is_written_out(self, target: Target) -> bool:
        return _address(self.parse(target.endpoint)[0]) is not None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _plain(host: str) -> str:
    """Return the canonical form of a name or address."""
    address = _address(host)
    return host.rstrip(".").lower() if address is None else str(address)


def _dialled(host: str, port: int) -> str:
    plain = _plain(host)
    return f"[{plain}]:{port}" if ":" in plain else f"{plain}:{port}"


def _unresolved(host: str, why: str) -> TransportError:
    return TransportError(f"expected addresses of {host}, got: {why}", reason=Reason.PEER_UNREACHABLE, retryable=True)
