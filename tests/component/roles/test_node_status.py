# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What status prints: nodes that failed, whom it calls, machines that wait, the policy and its exceptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.playbook_cases import Case, run_cases

ROLE = Path(__file__).parents[3] / "roles" / "node_status"
REFUSED = {
    "reason": "PCR_MISMATCH",
    "count": 3,
    "last_seen": "2026-11-21T12:00:00Z",
    "command": "policy",
    "message": "expected a boot that a profile allows, got PCR 0: expected a, got b; PCR 0 event 1: expected c, got d",
}
ROWS = [
    {"name": "w-1", "standing": "EvidenceGood", "standing_message": "fine"},
    {"name": "w-2", "standing": "ReattestationFailed", "standing_message": "refused; next: attested explain X"},
    {"name": "w-3", "standing": "ReattestationOverdue", "standing_message": "overdue; next: push"},
    {"name": "w-4", "standing": "", "refused": REFUSED},
]
DOWN = [
    {"name": "w-1", "standing": "EvidenceGood", "registered": True, "ready": False, "ready_message": "no CNI plugin"},
    {"name": "w-2", "standing": "EvidenceGood", "registered": True, "ready": False, "ready_message": ""},
    {"name": "w-3", "standing": "EvidenceGood", "registered": True, "ready": True, "ready_message": ""},
    {"name": "w-4", "standing": "", "registered": False, "ready": False, "ready_message": ""},
]


WAITING = [
    {"identity": "ek-7", "claims": "w-7", "since": "2026-11-20T08:00:00Z"},
    {"identity": "ek-8", "claims": "", "since": "2026-11-21T08:00:00Z"},
]
POLICY = {
    "generation": 7,
    "profiles": ["base", "next"],
    "revoked": 2,
    "seen_by": {"cp-1": 7, "cp-2": 6},
    "exceptions": [
        {"profile": "odd", "nodes": ["w-1", "w-2"], "until": "2999-01-01T00:00:00Z", "why": "firmware of w-1 first"},
        {"profile": "old", "nodes": ["w-3"], "until": "2001-01-01T00:00:00Z", "why": "was in a hurry"},
    ],
}


NOT_IN_FORCE = {
    "none was signed yet": (
        {},
        "POLICY none: every machine is refused. Run ansible-playbook attested.kubernetes.policy",
    ),
    "no control plane has seen it": (
        {**POLICY, "seen_by": {}, "exceptions": []},
        "POLICY generation 7, profiles base, next, 2 revoked, not recorded yet",
    ),
}
UNREADABLE = {**POLICY, "exceptions": [], "unreadable": ["MeasurementProfile odd: expected a list"]}


def known(*, needs_person: bool = False, rows: Any = None, **cluster: Any) -> dict[str, Any]:
    """Return the facts of each node: the templates read those of all nodes."""
    node = {"needs_person": needs_person, "to_do": "Nothing.", "phase": "Joined", "reason": ""}
    return {"node_status_node": node, "__node_status_cluster": {"nodes": rows or ROWS, **cluster}}


CLUSTERS = {
    "waiting": known(waiting=WAITING, policy=POLICY),
    "needs a person": known(needs_person=True),
    "not ready": known(rows=DOWN, policy={**POLICY, "revocations_unsigned": ["w-9"]}),
    "unreadable": known(waiting=[], policy=UNREADABLE),
    **{name: known(waiting=[], policy=policy) for name, (policy, _line) in NOT_IN_FORCE.items()},
}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[str]]]:
    """The lines of each template, as the role prints them."""
    templates = ("table.j2", "needed.j2", "policy.j2")
    texts = {name: f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/{name}') }}}}" for name in templates}
    render = {"record": texts, "run_once": True}
    cases = {name: Case(tasks=[{"ansible.builtin.set_fact": facts}, render]) for name, facts in CLUSTERS.items()}
    nodes = {"all": {"hosts": {row["name"]: {} for row in ROWS}}}
    directory = tmp_path_factory.mktemp("status")
    found = run_cases(directory, cases, hosts=nodes, vars_files=[str(ROLE / "vars" / "main.yml")])
    return {name: {file: text.splitlines() for file, text in found[name]["w-1"].items()} for name in CLUSTERS}


@pytest.fixture
def printed(clusters: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """What is printed of a cluster with machines that wait and a policy with exceptions."""
    return clusters["waiting"]


def test_the_table_says_how_nodes_stand_and_calls_for_those_that_are_bad(printed: dict[str, list[str]]) -> None:
    header, *lines = printed["table.j2"]
    start = header.index("ATTESTED")
    table = {line.split()[0]: line[start : start + 8].strip() for line in lines[: len(ROWS)]}
    assert table == {"w-1": "good", "w-2": "failed", "w-3": "overdue", "w-4": "-"}
    assert printed["needed.j2"] == [
        "A person is needed:",
        "w-2: refused; next: attested explain X",
        "w-3: overdue; next: push",
    ]


def test_a_node_that_is_not_ready_and_an_unsigned_revocation_need_a_person(
    clusters: dict[str, dict[str, list[str]]],
) -> None:
    look = "systemctl status kubelet containerd"
    assert clusters["not ready"]["needed.j2"] == [
        "A person is needed:",
        f"w-1: the Node is not Ready: no CNI plugin; next, on w-1: {look}",
        f"w-2: the Node is not Ready: its kubelet has not reported yet; next, on w-2: {look}",
        "w-9: its revocation is not in the signed policy; next: ansible-playbook attested.kubernetes.policy",
    ]


def test_machines_that_wait_are_told_with_the_command_that_lets_them_in(printed: dict[str, list[str]]) -> None:
    assert [line for line in printed["table.j2"] if line.startswith("WAITS")] == [
        "WAITS: ek-7 (claims w-7) since 2026-11-20T08:00:00Z: approve -e confirm=ek-7 -e node=NAME",
        "WAITS: ek-8 (claims no name) since 2026-11-21T08:00:00Z: approve -e confirm=ek-8 -e node=NAME",
    ]


def test_a_refused_node_is_told_with_register_and_event(printed: dict[str, list[str]]) -> None:
    at = printed["table.j2"].index("REFUSED w-4: PCR_MISMATCH, 3 times, the last at 2026-11-21T12:00:00Z")
    assert printed["table.j2"][at + 1 : at + 3] == [
        "  expected a boot that a profile allows, got PCR 0: expected a, got b",
        "  PCR 0 event 1: expected c, got d",
    ]


def test_a_refused_node_that_waits_for_a_person_names_the_next_command(
    clusters: dict[str, dict[str, list[str]]],
) -> None:
    said = clusters["needs a person"]["needed.j2"]
    assert said[-1] == "w-4: the cluster refused it by PCR_MISMATCH, see REFUSED above; next: policy"


def test_an_exception_is_told_until_somebody_takes_it_away(printed: dict[str, list[str]]) -> None:
    assert printed["policy.j2"] == [
        "POLICY generation 7, profiles base, next, 2 revoked, recorded by cp-1: 7, cp-2: 6",
        "EXCEPTION odd on w-1, w-2 until 2999-01-01T00:00:00Z: firmware of w-1 first",
        "EXCEPTION old on w-3 until 2001-01-01T00:00:00Z (over): was in a hurry",
    ]


@pytest.mark.parametrize("name", NOT_IN_FORCE)
def test_a_policy_that_is_not_in_force_is_told(clusters: dict[str, dict[str, list[str]]], name: str) -> None:
    _policy, line = NOT_IN_FORCE[name]
    assert clusters[name]["policy.j2"] == [line]


def test_an_object_that_cannot_be_read_is_named(clusters: dict[str, dict[str, list[str]]]) -> None:
    lines = clusters["unreadable"]["policy.j2"]
    assert lines[1:] == ["UNREADABLE, admits no machine: MeasurementProfile odd: expected a list"]
