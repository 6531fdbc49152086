# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which control plane is dialled next, by what happened and when."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_addresses import (
    FIRST_REST_SECONDS,
    LONGEST_REST_SECONDS,
    Choice,
)

A, B, C = "10.0.0.11:6443", "10.0.0.12:6443", "10.0.0.13:6443"


def test_at_first_the_order_is_that_of_the_list() -> None:
    assert Choice((B, A, C)).order(0.0) == (B, A, C)


def test_the_one_that_answered_last_is_first() -> None:
    choice = Choice((A, B, C))
    choice.answered(C)
    choice.answered(B)
    assert choice.order(0.0) == (B, A, C)


def test_who_failed_comes_last_until_it_has_rested() -> None:
    choice = Choice((A, B, C))
    choice.answered(A)
    choice.failed(A, 10.0)
    assert choice.order(10.0) == (B, C, A)
    assert choice.order(10.0 + FIRST_REST_SECONDS) == (A, B, C)


def test_one_that_came_back_is_not_gone_back_to() -> None:
    """Who answered last stays first, whoever was so before."""
    choice = Choice((A, B))
    choice.answered(A)
    choice.failed(A, 0.0)
    choice.answered(B)
    assert choice.order(1000.0) == (B, A)


def test_rests_double_up_to_a_bound() -> None:
    choice = Choice((A, B))
    rests = []
    for _time in range(8):
        choice.failed(A, 0.0)
        rests.append(next(second for second in range(1, 100) if choice.order(float(second))[0] == A))
    assert rests == [1, 2, 4, 8, 16, 30, 30, 30]
    assert LONGEST_REST_SECONDS == 30.0


def test_an_answer_ends_a_row_of_failures() -> None:
    choice = Choice((A, B))
    assert choice.failed(A, 0.0)
    assert not choice.failed(A, 5.0)
    choice.answered(A)
    assert choice.failed(A, 10.0)
    assert choice.order(11.0)[0] == A


def test_where_all_rest_nobody_is_left_out() -> None:
    """The one whose rest ends first is dialled first."""
    choice = Choice((A, B, C))
    choice.failed(B, 0.0)
    choice.failed(C, 0.1)
    choice.failed(A, 0.2)
    assert choice.order(0.3) == (B, C, A)


def test_one_that_a_name_led_to_is_first_though_no_list_has_it() -> None:
    choice = Choice((A,))
    choice.answered(C)
    assert choice.order(0.0) == (C, A)


@pytest.mark.parametrize(
    ("fresh", "order"),
    [
        pytest.param((C, B), (B, C), id="who stays and answered last stays first"),
        pytest.param((C,), (C,), id="who is gone is forgotten"),
        pytest.param((), (B, A), id="an empty list leaves the last good one"),
    ],
)
def test_another_list(fresh: tuple[str, ...], order: tuple[str, ...]) -> None:
    choice = Choice((A, B))
    choice.answered(B)
    choice.replace(fresh)
    assert choice.order(0.0) == order


def test_another_list_does_not_end_the_rest_of_who_stays() -> None:
    choice = Choice((A, B))
    choice.failed(A, 0.0)
    choice.replace((A, C))
    assert choice.order(0.5) == (C, A)
