# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which upgrade is next, and which is refused: the rules of kubeadm and of the version skew policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.upgrade_path import (
    RunningNode,
    require_steps,
    run_info,
    upgrade_path,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.versions import load_table
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ComponentError

TABLE = load_table(Path(__file__).parents[5] / "roles/bundle_builder/files/releases")


def nodes(**versions: str) -> list[RunningNode]:
    """Return nodes by name; those that begin with cp are control planes, "KUBELET/API SERVER" where these differ."""
    return [
        RunningNode(
            name=name.replace("_", "-"),
            version=version.partition("/")[0],
            control_plane=name.startswith("cp"),
            api_version=version.partition("/")[2],
        )
        for name, version in versions.items()
    ]


def path(running: list[RunningNode], wanted: str) -> list[tuple[str, str]]:
    return [(step.release, " ".join(step.nodes)) for step in upgrade_path(running, wanted, TABLE)]


@pytest.mark.parametrize(
    ("running", "wanted", "expected"),
    [
        pytest.param(nodes(cp_1="1.35.4", w_1="1.35.4"), "1.35", [], id="everything runs the wanted version"),
        pytest.param(nodes(), "1.36", [], id="no node"),
        pytest.param(
            nodes(cp_1="1.35.4", w_1="1.35.4"), "1.35.8", [("1.35.8", "cp-1"), ("1.35.8", "w-1")], id="a patch"
        ),
        pytest.param(
            nodes(cp_1="1.35.4", cp_2="1.35.4", w_1="1.35.4"),
            "1.36",
            [("1.36.3", "cp-1 cp-2"), ("1.36.3", "w-1")],
            id="the next minor",
        ),
        pytest.param(
            nodes(cp_1="1.35.4", w_2="1.35.4", w_1="1.35.4"),
            "1.37.2",
            [("1.36.3", "cp-1"), ("1.37.2", "cp-1"), ("1.37.2", "w-1 w-2")],
            id="two minors cross the one between, and workers move once",
        ),
        pytest.param(
            nodes(cp_1="1.36.3", cp_2="1.35.4", w_1="1.35.4"),
            "1.37.2",
            [("1.36.3", "cp-2"), ("1.37.2", "cp-1 cp-2"), ("1.37.2", "w-1")],
            id="an upgrade that was interrupted between two control planes",
        ),
        pytest.param(
            nodes(cp_1="1.36.4", cp_2="1.35.4"),
            "1.37.2",
            [("1.36.3", "cp-2"), ("1.37.2", "cp-1 cp-2")],
            id="a control plane with a newer patch is not downgraded on the way",
        ),
        pytest.param(
            nodes(cp_1="1.37.2", w_1="1.35.4", w_2="1.37.2"), "1.37", [("1.37.2", "w-1")], id="workers that are left"
        ),
        pytest.param(
            nodes(cp_1="1.36.3", w_1="1.33.5", w_2="1.34.0"),
            "1.37.2",
            [("1.36.3", "w-1"), ("1.37.2", "cp-1"), ("1.37.2", "w-1 w-2")],
            id="a worker that would be four minors behind moves first",
        ),
        pytest.param(
            nodes(cp_1="1.35.4/1.36.3", cp_2="1.35.4", w_1="1.35.4"),
            "1.37.2",
            [("1.36.3", "cp-2"), ("1.37.2", "cp-1 cp-2"), ("1.37.2", "w-1")],
            id="interrupted in a release in between",
        ),
        pytest.param(
            nodes(cp_1="1.37.2/1.37.2", cp_2="1.35.4/1.36.3", w_1="1.35.4"),
            "1.37.2",
            [("1.37.2", "cp-2"), ("1.37.2", "w-1")],
            id="interrupted in the last release",
        ),
        pytest.param(
            nodes(cp_1="1.35.4/1.37.2", cp_2="1.37.2/1.37.2", w_1="1.35.4"),
            "1.37.2",
            [("1.37.2", "cp-1"), ("1.37.2", "w-1")],
            id="interrupted before a kubelet",
        ),
        pytest.param(
            nodes(cp_1="1.33.0/1.36.3", w_1="1.33.5"),
            "1.37.2",
            [("1.36.3", "cp-1"), ("1.36.3", "w-1"), ("1.37.2", "cp-1"), ("1.37.2", "w-1")],
            id="a kubelet of a control plane that would be four minors behind moves first too",
        ),
        pytest.param(
            nodes(cp_1="1.36.4", cp_2="1.36.3", w_1="1.33.5"),
            "1.37.2",
            [("1.36.3", "w-1"), ("1.37.2", "cp-1 cp-2"), ("1.37.2", "w-1")],
            id="a kubelet goes to what the oldest API server runs",
        ),
        pytest.param(
            nodes(cp_1="1.35.4", w_1="1.32.0"),
            "1.37.2",
            [("1.35.4", "w-1"), ("1.36.3", "cp-1"), ("1.37.2", "cp-1"), ("1.37.2", "w-1")],
            id="a kubelet that moved first waits for the end then",
        ),
        pytest.param(
            nodes(cp_1="1.34.9", w_1="1.34.9"),
            "1.35",
            [("1.35.4", "cp-1"), ("1.35.4", "w-1")],
            id="from the minor before",
        ),
    ],
)
def test_the_path(running, wanted, expected):
    assert path(running, wanted) == expected


@pytest.mark.parametrize(
    ("running", "wanted", "code", "expected"),
    [
        pytest.param(
            nodes(cp_1="1.35.4"), "1.35.99", "RELEASE_UNKNOWN", "patches of this minor: 1.35.8", id="no such patch"
        ),
        pytest.param(nodes(cp_1="1.35.4"), "1.38", "RELEASE_UNKNOWN", "got '1.38'", id="a minor that is not supported"),
        pytest.param(nodes(cp_1="1.35.4"), "latest", "RELEASE_UNKNOWN", "got 'latest'", id="no version at all"),
        pytest.param(nodes(cp_1="1.36.3"), "1.35.8", "RELEASE_DOWNGRADE", "cp-1 runs 1.36.3", id="a minor down"),
        pytest.param(
            nodes(cp_1="1.35.8"), "1.35", "RELEASE_DOWNGRADE", "got 1.35.4: cp-1 runs 1.35.8", id="a patch down"
        ),
        pytest.param(
            nodes(cp_1="1.35.4", w_1="1.35.8"), "1.35", "RELEASE_DOWNGRADE", "w-1 runs 1.35.8", id="a worker down"
        ),
        pytest.param(
            nodes(cp_1="1.33.1"),
            "1.35",
            "RELEASE_UNKNOWN",
            "1.33.1 -> 1.35.4 goes by 1.34, and the table has no release of 1.34",
            id="a minor between that is not in the table",
        ),
        pytest.param(
            nodes(cp_1="1.35.4+k3s1"), "1.36", "RELEASE_UNKNOWN", "cp-1: '1.35.4+k3s1'", id="another distribution"
        ),
        pytest.param(
            nodes(cp_1="1.37.2", cp_2="1.35.4"),
            "1.37",
            "RELEASE_SKEW",
            "control planes at most one minor version apart, got cp-1 1.37.2, cp-2 1.35.4",
            id="control planes two minors apart",
        ),
        pytest.param(
            nodes(cp_1="1.37.2/1.37.2", cp_2="1.36.3/1.35.4"),
            "1.37",
            "RELEASE_SKEW",
            "got cp-1 1.37.2, cp-2 1.35.4",
            id="API servers two minors apart",
        ),
        pytest.param(
            nodes(cp_1="1.35.4/1.36.3"), "1.35", "RELEASE_DOWNGRADE", "cp-1 runs 1.36.3", id="older than an API server"
        ),
        pytest.param(nodes(cp_1="next/1.35.4"), "1.36", "RELEASE_UNKNOWN", "got cp-1: 'next'", id="a kubelet of none"),
        pytest.param(
            nodes(cp_2="1.35.4", cp_1="1.37.2"),
            "1.37",
            "RELEASE_SKEW",
            "got cp-1 1.37.2, cp-2 1.35.4",
            id="named in the order of their names",
        ),
        pytest.param(
            nodes(cp_1="1.35.4/latest"), "1.36", "RELEASE_UNKNOWN", "cp-1: 'latest'", id="an API of no version"
        ),
        pytest.param(
            nodes(cp_1="1.35.4", w_1="1.36.3"),
            "1.37",
            "RELEASE_SKEW",
            "no worker newer",
            id="a worker before its API server",
        ),
        pytest.param(
            nodes(cp_1="1.37.2", w_1="1.33.5"),
            "1.37",
            "RELEASE_SKEW",
            "got w-1 1.33.5",
            id="a worker four minors behind",
        ),
    ],
)
def test_a_refused_upgrade(running, wanted, code, expected):
    with pytest.raises(ComponentError) as caught:
        upgrade_path(running, wanted, TABLE)

    assert caught.value.code == code
    assert expected in caught.value.message


def test_everything_that_is_too_far_apart_is_named_at_once():
    with pytest.raises(ComponentError) as caught:
        upgrade_path(nodes(cp_1="1.37.0", cp_2="1.35.4", w_1="1.36.3", w_2="1.33.0"), "1.37", TABLE)

    assert [part.split(",")[0] for part in caught.value.message.split("; ")] == [
        "expected control planes at most one minor version apart",
        "expected no worker newer than the control planes (cp-1 1.37.0",
        "expected kubelets at most three minor versions older than the control planes (cp-1 1.37.0",
    ]


def test_each_step_says_why():
    steps = upgrade_path(nodes(cp_1="1.35.4", w_1="1.35.4"), "1.37.2", TABLE)

    assert [step.why for step in steps] == [
        "1.35.4 -> 1.37.2 goes by 1.36: kubeadm upgrades one minor version at a time",
        "the next minor version",
        "once, after the API servers: a kubelet may be up to three minor versions older than the API server",
    ]
    assert [step.workers for step in steps] == [False, False, True]
    assert [step.kubelets for step in steps] == [False, True, True]
    assert upgrade_path(nodes(cp_1="1.35.4"), "1.35.8", TABLE)[0].why == "a newer patch of the same minor version"


def test_the_oldest_api_server_says_why():
    first, *_rest = upgrade_path(nodes(cp_1="1.36.3", cp_2="1.35.4"), "1.37.2", TABLE)
    assert first.why.startswith("1.35.4 -> 1.37.2 goes by 1.36")


def test_kubelets_of_control_planes_move_twice_where_four_minors_are_crossed():
    """The table of today has three; this one has two more."""
    more = {f"1.{minor}": f"1.{minor}.0" for minor in (38, 39)}
    releases = {one: replace(TABLE.releases["1.37.2"], kubernetes=one) for one in more.values()}
    table = replace(TABLE, defaults={**TABLE.defaults, **more}, releases={**TABLE.releases, **releases})
    steps = upgrade_path(nodes(cp_1="1.35.4", w_1="1.35.4"), "1.39.0", table)
    assert [(step.release, *step.nodes, step.kubelets) for step in steps] == [
        ("1.36.3", "cp-1", False),
        ("1.37.2", "cp-1", False),
        ("1.38.0", "cp-1", False),
        ("1.38.0", "cp-1", True),
        ("1.38.0", "w-1", True),
        ("1.39.0", "cp-1", True),
        ("1.39.0", "w-1", True),
    ]


def test_a_worker_that_moves_first_says_why():
    first, *_rest = upgrade_path(nodes(cp_1="1.36.3", w_1="1.33.5"), "1.37.2", TABLE)

    assert first.workers
    assert first.why.endswith("than the API server, which goes to 1.37.2 next")


@pytest.mark.parametrize(
    ("steps", "target"),
    [([], "1.37.2"), (["1.36.3"], "1.37.2"), (["1.35.4", "1.36.3"], "1.37.2"), (["1.35.8"], "1.36.0")],
    ids=str,
)
def test_steps_that_lead_to_the_target(steps, target):
    require_steps(steps, target)


@pytest.mark.parametrize(
    ("steps", "target"),
    [
        (["1.35.4"], "1.37.2"),
        (["1.37.0"], "1.37.2"),
        (["1.36.3", "1.35.4"], "1.37.2"),
        (["1.36.2", "1.36.3"], "1.37.2"),
    ],
    ids=str,
)
def test_steps_that_do_not(steps, target):
    with pytest.raises(ComponentError) as caught:
        require_steps(steps, target)
    assert (caught.value.code, caught.value.message.endswith(f"got {', '.join(steps)}")) == ("RELEASE_SKEW", True)


FILES = Path(__file__).parents[5] / "roles/bundle_builder/files"
ROW = {"name": "cp-1", "version": "v1.35.4", "role": "control-plane", "registered": True}


def told(*rows: dict[str, object], wanted: str = "") -> dict[str, object]:
    done = run_info({"files_dir": str(FILES), "wanted": wanted, "nodes": list(rows)}, True)
    assert not done.changed
    return dict(done.values)


def test_the_module_lists_the_newest_release_first_with_its_nodes():
    values = told(ROW, {**ROW, "name": "w-9", "registered": False, "version": ""}, wanted="1.35")

    versions = [row["kubernetes"] for row in values["releases"]]
    assert versions[0] == "1.37.2"
    assert versions[-1] == "1.35.0"
    (row,) = [row for row in values["releases"] if row["kubernetes"] == "1.35.4"]
    assert (row["default"], row["bundle"], row["nodes"]) == (True, True, ["cp-1"])
    assert row["components"]["containerd"] == "2.3.4"
    assert "kubelet" not in row["components"]
    assert "kube-apiserver" in row["unpinned"]
    assert (values["wanted"], values["newest"], values["steps"], values["refused"]) == ("1.35.4", "1.37.2", [], {})


def test_the_module_leads_to_the_newest_release_unless_told():
    assert [step["release"] for step in told(ROW)["steps"]] == ["1.36.3", "1.37.2"]


def test_the_module_reads_what_an_api_server_runs():
    row = {**ROW, "api_version": "1.36.3"}
    assert [(step["release"], step["kubelets"]) for step in told(row)["steps"]] == [("1.37.2", True)]


def test_the_module_gives_each_step_as_a_whole():
    worker = {**ROW, "name": "w-1", "role": "worker"}
    steps = told(ROW, worker, wanted="1.36")["steps"]
    assert [{**step, "why": step["why"].split()[0]} for step in steps] == [
        {"release": "1.36.3", "nodes": ["cp-1"], "workers": False, "kubelets": True, "why": "the"},
        {"release": "1.36.3", "nodes": ["w-1"], "workers": True, "kubelets": True, "why": "once,"},
    ]


def test_the_module_says_which_nodes_run_what_and_which_hashes_there_are():
    values = told(ROW, wanted="1.35")
    found = {row["kubernetes"]: row for row in values["releases"]}
    assert [name for name, row in found.items() if row["nodes"]] == ["1.35.4"]
    assert values["others"] == {}
    unpinned = found["1.35.4"]["unpinned"]
    assert unpinned == sorted(unpinned)
    assert "kubelet" not in unpinned
    assert "etcd" not in unpinned


def test_the_module_says_why_no_upgrade_leads_there():
    values = told({**ROW, "version": "v1.33.2"}, wanted="1.35")

    assert values["others"] == {"cp-1": "1.33.2"}
    assert values["refused"] == {
        "reason": "RELEASE_UNKNOWN",
        "message": "1.33.2 -> 1.35.4 goes by 1.34, and the table has no release of 1.34",
        "command": "ansible-playbook attested.kubernetes.versions",
    }


@pytest.mark.parametrize("wrong", [{"role": "master"}, {"name": ""}, {"version": None}], ids=str)
def test_a_row_that_is_no_node_is_refused(wrong):
    with pytest.raises(ComponentError) as caught:
        told({**ROW, **wrong})

    assert caught.value.code == "OPTION_INVALID"
