# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counting connections: the oldest stranger goes, attested peers have a ceiling."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.atls.limits import (
    Limits,
    Served,
    Unverified,
    source_of,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError


def entered(limits: Limits, *sources: str) -> list[int]:
    """Let connections in, one after another, and return the positions of those that were given up."""
    gone: list[int] = []
    unverified = Unverified(limits)
    for position, source in enumerate(sources):
        unverified.enter(source, lambda position=position: gone.append(position))
    return gone


@pytest.mark.parametrize(
    ("sources", "gone"),
    [
        pytest.param("abcd", [], id="within the limit nobody goes"),
        pytest.param("abcde", [0], id="one more than fits: the oldest of all goes"),
        pytest.param("aaab", [0], id="one source too often: its own oldest goes"),
        pytest.param("baab", [], id="twice each fits"),
        pytest.param("baacd", [1], id="one more than fits: the oldest of who holds the most goes"),
        pytest.param("baacdee", [1, 0, 2], id="once all hold as few: the oldest of all goes"),
        pytest.param("bacaa", [1], id="a full source pays itself, not the oldest of all"),
    ],
)
def test_the_oldest_gives_way(sources: str, gone: list[int]) -> None:
    """Four in all, two a source."""
    assert gone == entered(Limits(unverified=4, unverified_per_source=2), *sources)


def test_leaving_twice_counts_once() -> None:
    """Given up and ended are both told; the count stays right."""
    unverified = Unverified(Limits(unverified=1))
    first = unverified.enter("a", lambda: None)
    unverified.enter("b", lambda: None)
    unverified.leave(first)
    unverified.leave(first)
    assert len(unverified) == 1


@pytest.mark.parametrize(
    ("sources", "refused"),
    [
        pytest.param("aab", False, id="room for all"),
        pytest.param("aaa", True, id="too many of one source"),
        pytest.param("aabc", True, id="too many in all"),
    ],
)
def test_attested_connections_have_a_ceiling(sources: str, refused: bool) -> None:
    """Three in all, two a source; one more is refused, and a place that was left is free."""
    served = Served(Limits(served=3, served_per_source=2))
    slots = [served.enter(source, lambda: None, now=0.0) for source in sources[:-1]]
    if refused:
        with pytest.raises(TransportError, match="CONNECTION_LIMIT"):
            served.enter(sources[-1], lambda: None, now=29.9)
        served.leave(slots[0])
    served.enter(sources[-1], lambda: None, now=29.9)
    assert len(served) == len(sources) - refused


def test_an_attested_connection_that_had_its_time_makes_room() -> None:
    """The oldest of a full source, or of all; who came later stays."""
    gone: list[str] = []
    served = Served(Limits(served=3, served_per_source=2))
    for name, source, now in (("a1", "a", 0.0), ("b1", "b", 1.0), ("b2", "b", 2.0)):
        served.enter(source, lambda name=name: gone.append(name), now=now)  # type: ignore[misc]
    served.enter("b", lambda: None, now=31.0)
    assert gone == ["b1"]
    served.enter("c", lambda: None, now=31.0)
    assert gone == ["b1", "a1"]
    with pytest.raises(TransportError, match="CONNECTION_LIMIT"):
        served.enter("d", lambda: None, now=31.5)
    assert len(served) == 3


@pytest.mark.parametrize(
    ("host", "source"),
    [
        pytest.param("10.0.0.7", "10.0.0.7", id="an IPv4 address is itself"),
        pytest.param("::ffff:10.0.0.7", "10.0.0.7", id="and also when it is mapped"),
        pytest.param("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", id="an IPv6 machine is its network"),
        pytest.param("fe80::1%eth0", "fe80::/64", id="a scope does not matter"),
        pytest.param("unknown", "unknown", id="what is no address is itself"),
    ],
)
def test_sources(host: str, source: str) -> None:
    """What one machine can make up freely is one source."""
    assert source == source_of(host)
