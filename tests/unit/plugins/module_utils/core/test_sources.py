# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as one source, and whose thing gives way."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.rate import Shares, source_of, source_of_remote


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


@pytest.mark.parametrize(
    ("remote", "source"),
    [
        pytest.param("10.0.0.7:50000", "10.0.0.7", id="an IPv4 address and a port"),
        pytest.param("[2001:db8:1:2::6]:50000", "2001:db8:1:2::/64", id="an IPv6 address and a port"),
    ],
)
def test_a_remote_counts_by_its_address(remote: str, source: str) -> None:
    """The port is the peer's to choose."""
    assert source == source_of_remote(remote)


@pytest.mark.parametrize(
    ("sources", "largest"),
    [
        pytest.param("abb", 1, id="who holds the most"),
        pytest.param("baab", 0, id="of equals, the oldest of all"),
    ],
)
def test_the_oldest_of_the_largest_share_gives_way(sources: str, largest: int) -> None:
    """Whoever floods pays himself."""
    shares: Shares[int] = Shares()
    for thing, source in enumerate(sources):
        shares.add(source, thing)
    assert (shares.of_the_largest(), len(shares), list(shares)) == (largest, len(sources), list(range(len(sources))))


def test_what_is_removed_counts_no_more() -> None:
    """And removing it again changes nothing."""
    shares: Shares[str] = Shares()
    shares.add("a", "first")
    shares.add("a", "second")
    assert (shares.oldest("a"), shares.source("second")) == ("first", "a")
    assert (shares.remove("first"), shares.remove("first")) == (True, False)
    assert (shares.oldest("a"), shares.count("a"), shares.count("b"), len(shares)) == ("second", 1, 0, 1)
    shares.remove("second")
    assert (shares.count("a"), len(shares)) == (0, 0)
