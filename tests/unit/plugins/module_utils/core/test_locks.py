# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lock for each name: one at a time of the same, and nobody waits for another's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import NamedLocks


def test_one_at_a_time_is_inside() -> None:
    locks, inside, most = NamedLocks(), [], []

    def enter(number: int) -> None:
        with locks.held("a"):
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(400)))
    assert (max(most), len(most)) == (1, 400)


def test_who_waits_goes_on_when_the_other_is_done() -> None:
    locks, order = NamedLocks(), []

    def enter() -> None:
        with locks.held("a"):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with locks.held("a"):
            waiting = pool.submit(enter)
            order.append("first")
        waiting.result()
    assert order == ["first", "second"]


def test_another_name_does_not_wait() -> None:
    locks = NamedLocks()
    with locks.held("a"), locks.held("b"):
        pass


def test_a_lock_is_free_after_an_error_and_none_is_kept() -> None:
    locks = NamedLocks()
    for _again in range(2):
        with pytest.raises(KeyError), locks.held("a"):
            raise KeyError
    assert locks._locks == {}
