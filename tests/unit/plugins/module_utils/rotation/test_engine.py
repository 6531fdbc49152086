# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who must answer before a rotation is planned, and which of its phases are left."""

from __future__ import annotations

from enum import Enum

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.engine import (
    phases_left,
    require_all,
    undone,
)


class Step(Enum):
    FIRST = 1
    SECOND = 2
    THIRD = 3


@pytest.mark.parametrize(
    ("answered", "known", "got"),
    [
        pytest.param({"a"}, {"b", "a"}, "(a, b), got that of a", id="one does not answer"),
        pytest.param({"b", "a"}, {"a"}, "(a), got that of a, b", id="one is not of the cluster"),
        pytest.param(set(), set(), "(none), got that of none", id="nobody"),
    ],
)
def test_a_plan_needs_every_node_and_no_other(answered: set[str], known: set[str], got: str) -> None:
    with pytest.raises(KubeadmError) as caught:
        require_all("node", answered, known)
    assert caught.value.reason is Reason.ROTATION_NODES_UNREACHED
    assert caught.value.message == f"expected what every node of the cluster has {got}"


def test_every_node_answered() -> None:
    require_all("node", {"a", "b"}, {"b", "a"})


def test_a_phase_is_left_where_any_check_finds_a_node_and_phases_keep_their_order() -> None:
    found = undone(iter([1, 2, 3]), {Step.THIRD: lambda one: one < 3, Step.SECOND: lambda one: one > 0})
    assert found == {Step.THIRD: (3,), Step.SECOND: ()}
    assert phases_left(Step, found) == (Step.THIRD,)
    assert phases_left(Step, found, {Step.FIRST: ["a Secret"], Step.SECOND: []}) == (Step.FIRST, Step.THIRD)
    assert phases_left(Step) == ()
