# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which taints of a Node are the site's, and what becomes of the others."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.node_taints import (
    Taint,
    parse_taints,
    plan_taints,
)

GPU = {"key": "example.com/gpu", "value": "present", "effect": "NoSchedule"}
DOWN = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-11-27T10:00:00Z"}
BAD = {"key": "attested-kubernetes.dev/not-attested", "effect": "NoSchedule"}
BY_HAND = {"key": "by-hand", "effect": "NoSchedule"}


def node(*taints: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"labels": labels or {}}, "spec": {"taints": list(taints)} if taints else {}}


def noted(*taints: dict[str, Any]) -> dict[str, str]:
    """Return the labels that an earlier run with these taints has left."""
    made = [Taint(key=one["key"], effect=one["effect"], value=one.get("value", "")) for one in taints]
    return {name: "" for name, value in plan_taints(node(), made).notes.items() if value is not None}


def test_a_taint_comes_beside_those_of_others_and_is_noted():
    plan = plan_taints(node(DOWN, BY_HAND), parse_taints([GPU]))
    assert plan.taints == (DOWN, BY_HAND, GPU)
    assert list(plan.notes.values()) == [""]
    assert all(name.startswith("taint.node-restriction.kubernetes.io/") for name in plan.notes)
    assert plan.after == (
        "by-hand:NoSchedule",
        "example.com/gpu=present:NoSchedule",
        "node.kubernetes.io/not-ready:NoExecute",
    )


def test_a_second_run_does_nothing_in_whatever_order_the_taints_are():
    for taints in ((GPU, DOWN), (DOWN, GPU)):
        assert plan_taints(node(*taints, labels=noted(GPU)), parse_taints([GPU])).is_empty


def test_another_value_takes_the_place_of_the_former():
    plan = plan_taints(node(GPU, labels=noted(GPU)), parse_taints([{**GPU, "value": "two"}]))
    assert (plan.taints, plan.notes, plan.is_empty) == (({**GPU, "value": "two"},), {}, False)


def test_what_is_taken_out_goes_with_its_note_and_nothing_else_does():
    labels = noted(GPU)
    plan = plan_taints(node(BY_HAND, GPU, DOWN, labels={**labels, "rack": "r7"}), ())
    assert plan.taints == (BY_HAND, DOWN)
    assert plan.notes == dict.fromkeys(labels)


def test_another_effect_of_a_key_is_another_taint():
    evicts = {**GPU, "effect": "NoExecute"}
    plan = plan_taints(node(GPU, evicts, labels=noted(GPU)), ())
    assert plan.taints == (evicts,)


def test_one_that_somebody_set_by_hand_becomes_the_sites():
    plan = plan_taints(node(GPU), parse_taints([GPU]))
    assert (plan.taints, list(plan.notes.values()), plan.is_empty) == ((GPU,), [""], False)


def test_a_note_for_a_taint_of_this_collection_removes_nothing():
    plan = plan_taints(node(BAD, DOWN, labels=noted(BAD, DOWN)), ())
    assert plan.taints == (BAD, DOWN)


def test_a_note_without_a_taint_goes():
    plan = plan_taints(node(labels=noted(GPU)), ())
    assert (plan.taints, plan.is_empty) == ((), False)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        pytest.param([BAD], "this collection sets", id="ours"),
        pytest.param([DOWN], "this collection sets", id="that of Kubernetes"),
        pytest.param([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}], "sets", id="a role"),
        pytest.param(
            [{"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}], "sets", id="that of a cloud"
        ),
        pytest.param([GPU, {**GPU, "value": "two"}], "each key once", id="twice"),
        pytest.param([{**GPU, "key": "a b"}], "expected a key", id="a key with a blank"),
        pytest.param([{**GPU, "value": "a/b"}], "expected a key, a value", id="a value with a slash"),
        pytest.param([{**GPU, "effect": "Never"}], "NoSchedule, PreferNoSchedule, NoExecute", id="an effect"),
    ],
)
def test_what_cannot_be_meant_is_refused(rows: list[dict[str, Any]], says: str):
    with pytest.raises(SiteError, match=says) as caught:
        parse_taints(rows)
    assert caught.value.code == "CONFIG_INVALID"
