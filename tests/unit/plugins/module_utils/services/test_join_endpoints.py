# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom a node asks: each address by itself, in random order, the one that decided last first, itself never."""

from __future__ import annotations

import socket

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_endpoints import (
    Favourite,
    SystemResolver,
    Targets,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import parse_endpoint
from ansible_collections.attested.kubernetes.tests.unit.fakes.random import SeededRandom


class Names:
    """A resolver with a table; ``local`` are the addresses of this machine."""

    def __init__(self, table: dict[str, tuple[str, ...]] | None = None, *, local: tuple[str, ...] = ()) -> None:
        self._table = table or {}
        self._local = local
        self.asked: list[str] = []

    def addresses(self, host: str) -> tuple[str, ...]:
        """Look the name up."""
        self.asked.append(host)
        if host not in self._table:
            raise TransportError(f"expected addresses of {host}, got: unknown", reason=Reason.PEER_UNREACHABLE)
        return self._table[host]

    def is_own(self, address: str) -> bool:
        """Whether it is in the list."""
        return address in self._local


def targets(*endpoints: str, names: Names | None = None, own: tuple[str, ...] = (), seed: int = 1) -> Targets:
    return Targets(
        endpoints=endpoints,
        own=frozenset(own),
        parse=parse_endpoint,
        resolver=names or Names(),
        random=SeededRandom(seed),
        favourite=Favourite(),
    )


def dialled(around: Targets, *, itself: bool = False) -> list[str]:
    return [target.dialled for target in around.round(itself=itself)]


def test_each_address_of_a_name_is_asked_with_its_port() -> None:
    names = Names({"join.example": ("10.0.0.11", "10.0.0.12", "fd00::13")})
    found = list(targets("join.example:9443", names=names).round())
    assert sorted(target.dialled for target in found) == ["10.0.0.11:9443", "10.0.0.12:9443", "[fd00::13]:9443"]
    assert {str(target) for target in found} >= {"join.example:9443 at 10.0.0.11:9443"}


def test_an_address_behind_two_endpoints_is_asked_once() -> None:
    """The balancer's name, and an address that it and the inventory have in two spellings."""
    names = Names({"lb.example": ("fd00::1", "10.0.0.12")})
    around = targets("lb.example:9090", "[FD00:0::1]:9090", "[::ffff:10.0.0.12]:9090", names=names)
    assert sorted(dialled(around)) == ["10.0.0.12:9090", "[fd00::1]:9090"]


@pytest.mark.parametrize(
    "endpoint",
    [
        pytest.param("10.0.0.21:9090", id="its own address"),
        pytest.param("[FD00:0::21]:9090", id="its own address in another spelling"),
        pytest.param("W-1.Example.:9090", id="its own name in another spelling"),
        pytest.param("alias.example:9090", id="a name that DNS knows for its address"),
        pytest.param("hosts.example:9090", id="a name that /etc/hosts knows for the loopback"),
        pytest.param("10.0.0.99:9090", id="an address that it holds for a balancer"),
    ],
)
def test_a_node_never_asks_itself(endpoint: str) -> None:
    names = Names({"alias.example": ("10.0.0.21",), "hosts.example": ("127.0.1.1",)}, local=("10.0.0.99", "127.0.1.1"))
    around = targets(endpoint, "10.0.0.12:9090", names=names, own=("w-1.example", "10.0.0.21", "fd00::21"))
    assert dialled(around) == ["10.0.0.12:9090"]


def test_its_own_name_is_not_even_looked_up() -> None:
    names = Names({"w-1": ("10.0.0.12",)})
    assert (dialled(targets("w-1:9090", names=names, own=("w-1",))), names.asked) == ([], [])


def test_only_some_addresses_of_a_name_may_be_its_own() -> None:
    names = Names({"lb.example": ("10.0.0.21", "10.0.0.12")}, local=("10.0.0.21",))
    assert dialled(targets("lb.example:9090", names=names)) == ["10.0.0.12:9090"]


def test_a_loopback_address_that_is_written_out_is_a_proxy_of_this_machine() -> None:
    assert dialled(targets("127.0.0.1:9090", names=Names(local=("127.0.0.1",)))) == ["127.0.0.1:9090"]


def test_who_may_ask_itself_does_so_last() -> None:
    found = {
        tuple(dialled(targets("10.0.0.21:9090", "10.0.0.12:9090", own=("10.0.0.21",), seed=seed), itself=True))
        for seed in range(20)
    }
    assert found == {("10.0.0.12:9090", "10.0.0.21:9090")}


def test_a_name_without_an_address_hides_nobody_else() -> None:
    found = {str(target): target.unresolved for target in targets("gone.example:9090", "10.0.0.12:9090").round()}
    assert found["10.0.0.12:9090"] is None
    assert found["gone.example:9090"] is not None


def test_a_name_is_looked_up_when_it_is_its_turn() -> None:
    """A dead name server costs nothing where another endpoint has answered before."""
    names = Names()
    for seed in range(20):
        around = targets("gone.example:9090", "10.0.0.12:9090", names=names, seed=seed)
        first = next(around.round())
        assert ("gone.example" in names.asked) is (first.unresolved is not None)
        names.asked.clear()


def test_every_machine_has_an_order_of_its_own() -> None:
    """Of 300 machines each of three services is the first for about a third."""
    three = ("10.0.0.11:9090", "10.0.0.12:9090", "10.0.0.13:9090")
    first = [dialled(targets(*three, seed=seed))[0] for seed in range(300)]
    assert all(70 < first.count(endpoint) < 130 for endpoint in three)


def test_each_round_has_an_order_of_its_own() -> None:
    around = targets("10.0.0.11:9090", "10.0.0.12:9090", "10.0.0.13:9090")
    assert len({tuple(dialled(around)) for _unused in range(40)}) == 6


def test_who_decided_last_comes_first_and_once() -> None:
    names = Names({"lb.example": ("10.0.0.11", "10.0.0.12")})
    around = targets("lb.example:9090", "10.0.0.13:9090", names=names)
    chosen = next(target for target in around.round() if target.dialled == "10.0.0.12:9090")
    around.favourite.note(chosen, decided=True)
    rounds = [dialled(around) for _unused in range(20)]
    assert {one[0] for one in rounds} == {"10.0.0.12:9090"}
    assert {len(one) for one in rounds} == {3}


def test_a_favourite_that_is_away_is_one_of_many_again() -> None:
    around = targets("10.0.0.11:9090", "10.0.0.12:9090")
    here, there = list(around.round())
    around.favourite.note(here, decided=True)
    around.favourite.note(there, decided=False)
    assert around.favourite.target == here
    around.favourite.note(here, decided=False)
    assert around.favourite.target is None


def test_the_system_knows_its_own_loopback_and_not_the_documentation_network() -> None:
    resolver = SystemResolver()
    assert resolver.is_own("127.0.0.1")
    assert resolver.is_own("127.0.1.1")
    assert not resolver.is_own("192.0.2.1")


def test_the_system_resolves_the_local_name_and_refuses_a_name_that_is_none() -> None:
    assert set(SystemResolver().addresses("localhost")) <= {"127.0.0.1", "::1"}
    with pytest.raises(TransportError) as caught:
        SystemResolver().addresses("a" * 64 + ".invalid")
    assert caught.value.code == "PEER_UNREACHABLE"


def test_a_zone_is_left_out_and_many_addresses_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's resolver answers more than can be asked."""
    many = ["fe80::1%eth0", *(f"10.0.0.{number}" for number in range(40))]
    answers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in many]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_words, **_options: answers)
    assert SystemResolver().addresses("lb.example") == tuple(f"10.0.0.{number}" for number in range(16))
