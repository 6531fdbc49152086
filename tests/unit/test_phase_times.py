# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of phases says where the time went: kubeadm's lines, a bootstrapper's journal, the result of an init."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import INIT_PHASES, JOIN_PHASES
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import render_init, render_join
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import (
    ClusterSpec,
    KubernetesPaths,
    NodeSpec,
)
from ansible_collections.attested.kubernetes.tests.support import phase_times
from ansible_collections.attested.kubernetes.tests.support.phase_times import (
    INIT,
    JOIN,
    OURS_OF_A_JOIN,
    TOTAL,
    Line,
    Row,
    Task,
    Told,
)

CLUSTER = ClusterSpec(kubernetes_version="1.35.4", cluster_name="lab", api_endpoint="api.lab:6443")
NODE = NodeSpec(name="cp-1", node_ip="10.0.0.1", allow_cgroup_v1=True, patches="/var/lib/attested/kubeadm/patches")
PRINTED = (
    (1.0, "[init] Using Kubernetes version: v1.35.4"),
    (1.1, "[preflight] Running pre-flight checks"),
    (1.2, "        [WARNING SystemVerification]: cgroups v1 support is in maintenance mode"),
    (1.5, '[certs] Using certificateDir folder "/etc/kubernetes/pki"'),
    (2.0, '[patches] Applied patch of type "strategic" to target "etcd"'),
    (2.5, '[certs] Generating "ca" certificate and key'),
    (4.0, "[wait-control-plane] Waiting for the kubelet to boot up the control plane"),
    (5.0, "[kubelet-check] Waiting for a healthy kubelet"),
    (9.0, "[addons] Applied essential addon: CoreDNS"),
)
LINES = [Line(at=at, text=text) for at, text in PRINTED]
KNOWN = [tag for one in INIT for tag in one.tags]
TASKS = [
    Task(stage="Take the machine", task="Keep the keys", seconds=0.5),
    Task(stage="Take the machine", task="Lock the machine", seconds=2.0),
    Task(stage="Make the cluster", task="Write certificates and kubeconfigs", seconds=3.0),
    Task(stage="Make the cluster", task="Start the control plane", seconds=6.0),
    Task(stage="Make the cluster", task="Kinds of objects", seconds=1.5),
    Task(stage="Let others join", task="Key service", seconds=4.0),
]


def by_title(rows: list[Row]) -> dict[str, tuple[float | None, float | None]]:
    return {row.title: (_rounded(row.bare), _rounded(row.ours)) for row in rows}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def entry(at: float, **said: object) -> str:
    return json.dumps({"__MONOTONIC_TIMESTAMP": str(int(at * 1e6)), "MESSAGE": json.dumps(said)})


JOURNAL = "\n".join(
    [
        entry(5.0, event="course", course="RACE"),
        entry(6.0, event="step", name="ticket", seconds=90.0),
        json.dumps({"__MONOTONIC_TIMESTAMP": "10100000", "MESSAGE": "Starting Make a node of this machine"}),
        json.dumps({"__MONOTONIC_TIMESTAMP": "10200000", "MESSAGE": [123, 255]}),
        entry(11.5, event="course", course="RACE"),
        entry(14.0, event="step", name="ticket", seconds=1.25),
        entry(14.0, event="step", name="lock", seconds=0.5),
        entry(14.0, event="step", name="kubelet-start", seconds=0.25),
        entry(14.0, event="step", name="bootstrap-config", seconds=0.25),
        entry(14.0, event="joined", steps="ticket, lock"),
    ]
)


def test_a_tag_lasts_until_the_next_known_one_and_the_first_from_the_beginning() -> None:
    found = phase_times.seconds_by_tag(LINES, known=KNOWN, begun=0.5, ended=9.5)
    assert found == pytest.approx(
        {"init": 0.6, "preflight": 0.4, "certs": 2.5, "wait-control-plane": 1.0, "kubelet-check": 4.0, "addons": 0.5}
    )
    assert sum(found.values()) == pytest.approx(9.0)


def test_what_comes_after_the_end_does_not_count() -> None:
    """A Node may be there before kubeadm has seen that its kubelet is healthy."""
    found = phase_times.seconds_by_tag(LINES, known=KNOWN, begun=0.5, ended=5.5)
    assert (found["kubelet-check"], found["addons"]) == (0.5, 0.0)
    assert sum(found.values()) == pytest.approx(5.0)


def test_output_that_is_not_kubeadms_is_none() -> None:
    with pytest.raises(ValueError, match="expected lines of kubeadm"):
        phase_times.seconds_by_tag([Line(at=1.0, text="error: no such file")], known=KNOWN, begun=0.0, ended=1.0)


@pytest.mark.parametrize(
    ("table", "steps"),
    [
        pytest.param(INIT, [phase.name for phase in INIT_PHASES], id="init"),
        pytest.param((*OURS_OF_A_JOIN, *JOIN), ["ticket", "lock", "write", *(p.name for p in JOIN_PHASES)], id="join"),
    ],
)
def test_every_step_of_ours_has_one_row(table: tuple[phase_times.Phase, ...], steps: list[str]) -> None:
    assert sorted(step for one in table for step in one.steps) == sorted(steps)
    tags = [tag for one in table for tag in one.tags]
    assert len(tags) == len(set(tags))


def test_the_rows_of_an_init_add_up_on_both_sides() -> None:
    bare = phase_times.seconds_by_tag(LINES, known=KNOWN, begun=0.5, ended=9.5)
    steps = {"preflight": 0.5, "certs": 1.5, "wait-control-plane": 5.0}
    rows = phase_times.init_rows(bare, steps, TASKS, ours=20.0)
    found = by_title(rows)
    assert found == {
        "judge the machine, send it the keys": (None, 3.0),
        "keep the keys": (None, 0.5),
        "lock the machine": (None, 2.0),
        "check the machine": (1.0, 0.5),
        "certificates": (2.5, 1.5),
        "wait for the control plane": (5.0, 5.0),
        "token of bare, finish kubelet, DNS and proxy": (0.5, None),
        "Ansible around kubeadm": (None, 2.0),
        "make the cluster: 1 other tasks": (None, 1.5),
        "let others join: 1 other tasks": (None, 4.0),
        TOTAL: (9.0, 20.0),
    }
    assert sum(row.ours or 0 for row in rows[:-1]) == pytest.approx(20.0)
    assert sum(row.bare or 0 for row in rows[:-1]) == pytest.approx(9.0)


def test_the_rows_of_a_join_go_from_the_unit_to_the_node() -> None:
    told = phase_times.told_by(JOURNAL, since=10.0)
    bare = {"preflight": 0.25, "kubelet-start": 0.75}
    rows = phase_times.join_rows(bare, told, unit_at=10.0, node_at=14.5, bare_seconds=1.5)
    assert by_title(rows) == {
        "start the program, look at the machine": (None, 1.5),
        "ask for a ticket": (None, 1.25),
        "take the lock": (None, 0.5),
        "check the machine, find the cluster": (0.25, None),
        "start the kubelet": (0.75, 0.5),
        "until the Node is there": (0.5, 0.75),
        TOTAL: (1.5, 4.5),
    }


def test_a_journal_is_read_from_a_moment_on() -> None:
    """What an earlier start has told does not count, and lines that are none of its own are no harm."""
    steps = {"ticket": 1.25, "lock": 0.5, "kubelet-start": 0.25, "bootstrap-config": 0.25}
    assert phase_times.told_by(JOURNAL, since=10.0) == Told(course_at=11.5, steps=steps)
    assert phase_times.told_steps(JOURNAL, since=12.0) == steps


def test_the_starts_of_a_unit_are_read_from_what_systemd_tells_of_it() -> None:
    told = [json.dumps({"__MONOTONIC_TIMESTAMP": str(at), "MESSAGE": "Starting"}) for at in (1_500_000, 31_500_000)]
    assert phase_times.told_starts("\n".join(told)) == [1.5, 31.5]
    assert phase_times.told_starts("") == []


@pytest.mark.parametrize(
    ("since", "lacking"),
    [pytest.param(12.0, "course", id="began earlier"), pytest.param(15.0, "course", id="told nothing")],
)
def test_a_journal_without_a_course_is_refused(since: float, lacking: str) -> None:
    with pytest.raises(ValueError, match=lacking):
        phase_times.told_by(JOURNAL, since=since)


def test_a_journal_without_steps_is_refused() -> None:
    """A release that does not tell them yet would show a table of nothing."""
    with pytest.raises(ValueError, match="expected steps"):
        phase_times.told_by(entry(11.0, event="course"), since=10.0)


def test_the_tasks_of_an_init_are_read_from_what_the_playbook_prints() -> None:
    result = {"changed": True, "tasks": [{"stage": "Make", "task": "Certificates", "seconds": 3.5}]}
    output = (
        f"TASK [Evidence] ***\n  cp-1: asks\nchanged: [cp-1] => {json.dumps(result, indent=4)}\n\nTASK [Next] ***\n"
    )
    assert phase_times.told_tasks(output) == [Task(stage="Make", task="Certificates", seconds=3.5)]
    with pytest.raises(ValueError, match="expected the tasks"):
        phase_times.told_tasks('TASK [Evidence] ***\nchanged: [cp-1] => {"changed": true}\n')


def test_the_median_of_a_row_is_that_of_the_rounds_that_have_it() -> None:
    rounds = [
        [Row(title="a", bare=1.0, ours=2.0), Row(title=TOTAL, bare=1.0, ours=2.0)],
        [Row(title="a", bare=3.0, ours=4.0), Row(title="b", ours=7.0), Row(title=TOTAL, bare=3.0, ours=11.0)],
        [Row(title="a", bare=2.0, ours=9.0), Row(title=TOTAL, bare=2.0, ours=9.0)],
    ]
    assert phase_times.medians(rounds) == [
        Row(title="a", bare=2.0, ours=4.0),
        Row(title="b", ours=7.0),
        Row(title=TOTAL, bare=2.0, ours=9.0),
    ]


def test_the_table_has_a_difference_where_both_sides_have_the_work() -> None:
    rows = [Row(title="certificates", bare=1.0, ours=1.5), Row(title="take the lock", ours=0.25)]
    assert phase_times.rendered("join", rows).split("\n") == [
        "join             bare s    ours s      more",
        "certificates       1.00      1.50      0.50",
        "take the lock         -      0.25         -",
    ]


def test_the_longest_tasks_come_first() -> None:
    lines = phase_times.longest(TASKS, count=2).split("\n")
    assert [line.split(": ")[-1] for line in lines] == ["Start the control plane", "Key service"]


def test_bare_kubeadm_is_told_what_ours_is_without_what_ours_hardens() -> None:
    ours = render_init(CLUSTER, NODE, paths=KubernetesPaths())
    before, after = (
        {one["kind"]: one for one in yaml.safe_load_all(text)} for text in (ours, phase_times.bare_init_config(ours))
    )
    assert "skipPhases" not in after["InitConfiguration"]
    assert "patches" not in after["InitConfiguration"]
    assert after["InitConfiguration"]["nodeRegistration"] == before["InitConfiguration"]["nodeRegistration"]
    assert after["ClusterConfiguration"]["apiServer"] == {
        "certSANs": before["ClusterConfiguration"]["apiServer"]["certSANs"]
    }
    assert after["ClusterConfiguration"]["networking"] == before["ClusterConfiguration"]["networking"]
    assert "serverTLSBootstrap" not in after["KubeletConfiguration"]
    assert after["KubeletConfiguration"]["failCgroupV1"] is False
    assert phase_times.endpoint_of(ours) == "api.lab:6443"


def test_bare_kubeadm_joins_by_what_its_init_has_printed() -> None:
    ours = render_join(NODE, paths=KubernetesPaths())
    ca_hash = f"sha256:{'0' * 64}"
    printed = f"kubeadm join api.lab:6443 --token abcdef.0123456789abcdef  \t--discovery-token-ca-cert-hash {ca_hash}"
    told = yaml.safe_load(phase_times.bare_join_config(ours, endpoint="api.lab:6443", printed=printed))
    assert told["discovery"] == {
        "bootstrapToken": {
            "apiServerEndpoint": "api.lab:6443",
            "token": "abcdef.0123456789abcdef",
            "caCertHashes": [ca_hash],
        }
    }
    assert told["nodeRegistration"] == yaml.safe_load(ours)["nodeRegistration"]
    with pytest.raises(ValueError, match="expected how to join"):
        phase_times.bare_join_config(ours, endpoint="api.lab:6443", printed="[addons] Applied")
