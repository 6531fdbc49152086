# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers and orders that are drawn, and times as a person reads them."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import shuffled, span, uniform
from ansible_collections.attested.kubernetes.tests.unit.fakes.random import SeededRandom


class Bytes:
    """Draws one byte again and again."""

    def __init__(self, byte: int) -> None:
        self._byte = byte

    def token(self, size: int) -> bytes:
        """Repeat it."""
        return bytes([self._byte]) * size


def test_the_ends_of_a_window() -> None:
    """The lower belongs to it, the upper does not."""
    assert uniform(Bytes(0), below=8.0) == 0.0
    assert 7.99 < uniform(Bytes(255), below=8.0) <= 8.0


def test_each_tenth_of_a_window_is_drawn_as_often() -> None:
    random = SeededRandom(1)
    drawn = [int(uniform(random, below=10)) for _unused in range(10_000)]
    assert all(900 < drawn.count(tenth) < 1100 for tenth in range(10))


def test_each_order_is_drawn_as_often() -> None:
    random = SeededRandom(2)
    orders = ["".join(shuffled(random, "abc")) for _unused in range(6_000)]
    assert sorted(set(orders)) == ["abc", "acb", "bac", "bca", "cab", "cba"]
    assert all(850 < orders.count(order) < 1150 for order in set(orders))


def test_nothing_is_lost_where_chance_repeats_itself() -> None:
    assert sorted(shuffled(Bytes(7), ["b", "a", "b"])) == ["a", "b", "b"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(0.2, "0 s", id="nothing"),
        pytest.param(119, "119 s", id="seconds"),
        pytest.param(5400, "90 min", id="minutes"),
        pytest.param(86400, "24 h", id="hours"),
        pytest.param(365 * 86400, "365 d", id="days"),
    ],
)
def test_a_span_of_time(seconds: float, text: str) -> None:
    assert span(seconds) == text
