# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.plugin_utils.stage_lines import (
    WIDTH,
    Stage,
    begun_line,
    failed_items,
    failure_lines,
    host_lines,
    hosts_in_short,
    item_line,
    line,
    spent,
    stage_lines,
)

STAGE = Stage(name="Join the cluster", began=10.0, action="attested.kubernetes.kubeadm_node", path="roles/node/x.yml:3")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(0.04, "0.0 s", id="nothing"),
        pytest.param(83.14, "83.1 s", id="below a hundred seconds with a tenth"),
        pytest.param(725, "12 min 05 s", id="longer in minutes"),
    ],
)
def test_durations(seconds, expected):
    assert spent(seconds) == expected


@pytest.mark.parametrize(
    ("names", "total", "expected"),
    [
        pytest.param(["w-1", "cp-1"], 3, "cp-1, w-1", id="few hosts by name, in order"),
        pytest.param([f"w-{n}" for n in range(4)], 4, "all 4 hosts", id="all of many"),
        pytest.param([f"w-{n}" for n in range(4)], 9, "4 of 9 hosts", id="some of many"),
        pytest.param(["a" * 20, "b" * 20], 2, "all 2 hosts", id="long names as a number"),
    ],
)
def test_hosts_in_short(names, total, expected):
    assert hosts_in_short(names, total) == expected


@pytest.mark.parametrize(
    ("changes", "seconds", "expected"),
    [
        pytest.param({"good": ["w-1"]}, 0.2, False, id="a short check has no line"),
        pytest.param({"good": ["w-1"]}, 1.5, True, id="a long check is told"),
        pytest.param({"changed": ["w-1"]}, 0.1, True, id="a change is told"),
        pytest.param({"good": ["w-1"], "steps": [("w-1", {"name": "certs"})]}, 0.1, True, id="steps are told"),
        pytest.param({"ignored": ["w-1"]}, 0.1, True, id="an ignored failure is told"),
        pytest.param({}, 99.0, False, id="a task that every host skipped is no stage"),
    ],
)
def test_what_is_worth_a_line(changes, seconds, expected):
    assert Stage(name="x", began=5.0, **changes).is_worth_a_line(5.0 + seconds) is expected


def test_steps_stand_below_their_stage():
    steps = [("cp-1", {"name": "certs", "seconds": 1.2, "changed": True}), ("cp-1", {"name": "etcd", "seconds": 0.3})]
    rows = stage_lines(Stage(name="kubeadm init", began=0.0, changed=["cp-1"], steps=steps), now=2.0, total=1)
    assert [row.split() for row in rows] == [
        ["kubeadm", "init", "changed", "cp-1", "2.0", "s"],
        ["-", "certs", "changed", "cp-1", "1.2", "s"],
        ["-", "etcd", "ok", "cp-1", "0.3", "s"],
    ]


def test_no_row_is_wider_than_the_terminal():
    rows = [line("n" * 200, "changed", "h" * 200, 6000)]
    rows += failure_lines("w-1", {"msg": "word " * 90, "hint": "hint " * 90}, stage=STAGE, playbook="x.yml")
    rows += [begun_line("n" * 200, after_seconds=6000), *host_lines("cp-1", "word " * 90)]
    assert max(len(row) for row in rows) <= WIDTH


def test_a_failure_of_ours_names_code_hint_and_next_command():
    result = {"msg": "expected X, got Y", "reason": "PCR_MISMATCH", "hint": "Look.", "command": "attested status"}
    text = "\n".join(failure_lines("w-1", result, stage=STAGE, playbook="attested.kubernetes.node"))
    for part in (
        "w-1: expected X, got Y",
        "reason   PCR_MISMATCH",
        "hint     Look.",
        "next     attested status",
        "explain  attested explain PCR_MISMATCH",
        "at       roles/node/x.yml:3 (attested.kubernetes.kubeadm_node)",
    ):
        assert part in text
    assert "again" not in text


def test_a_failed_step_of_a_machine_is_shown_with_its_last_lines():
    result = {"msg": "no", "reason": "KUBEADM_PHASE_FAILED", "stage": "Make it", "task": "certs", "log": ["a", "  b"]}
    text = "\n".join(failure_lines("cp-1", result, stage=STAGE, playbook="x.yml"))
    for part in ("during   Make it / certs", "    its last lines:\n      a\n        b"):
        assert part in text


def test_a_task_of_a_machine_stands_below_its_stage():
    assert host_lines("cp-1", "Make the cluster") == ["  cp-1: Make the cluster"]
    assert begun_line("certs", after_seconds=2.04).split() == ["-", "certs", "2.0", "s"]


def test_an_item_of_a_loop_has_its_place_its_time_and_that_of_the_task():
    row = item_line("etcd 1.35.4", {"index": 2, "length": 17}, "changed", seconds=31.24, elapsed=250)
    words = ["-", "2", "of", "17:", "etcd", "1.35.4", "changed", "after", "4", "min", "10", "s", "31.2", "s"]
    assert row.split() == words
    assert len(item_line("n" * 200, {}, "changed", seconds=6000, elapsed=60000)) <= WIDTH


def test_a_failed_command_is_shown_with_all_its_output():
    result = {"msg": "non-zero return code", "rc": 2, "stdout": "one\ntwo", "stderr": "three"}
    text = "\n".join(failure_lines("w-1", result, stage=STAGE, playbook="site.yml"))
    for part in ("exit     2", "      one\n      two", "      three", "ansible-playbook site.yml -v"):
        assert part in text


def test_a_hidden_result_says_that_it_is_hidden():
    rows = failure_lines("w-1", {"censored": "the output has been hidden"}, stage=STAGE, playbook="")
    assert "  w-1: the output has been hidden" in rows


def test_of_a_loop_only_the_failed_items_are_shown():
    bad = {"failed": True, "msg": "no"}
    assert list(failed_items({"results": [{"failed": False}, bad, {}]})) == [bad]
    assert list(failed_items({"msg": "alone"})) == [{"msg": "alone"}]
