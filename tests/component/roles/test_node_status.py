# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What status prints: nodes that failed, whom it calls, machines that wait, the policy and its exceptions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent
ROLE = Path(__file__).parents[3] / "roles" / "node_status"
BOOK = """
- hosts: all
  connection: local
  gather_facts: false
  vars: {{ansible_python_interpreter: "{{{{ ansible_playbook_python }}}}"}}
  vars_files: [vars.json, {role}/vars/main.yml]
  tasks:
    - ansible.builtin.copy:
        content: "{{{{ lookup('ansible.builtin.template', '{role}/templates/' ~ item) }}}}"
        dest: "{{{{ playbook_dir }}}}/{{{{ item }}}}.txt"
        mode: "0600"
      loop: [table.j2, needed.j2, policy.j2]
      run_once: true
"""
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


def rendered(directory: Path, *, needs_person: bool = False, **cluster: Any) -> dict[str, list[str]]:
    """Return the lines of each template, as the role prints them."""
    node = {"needs_person": needs_person, "to_do": "Nothing.", "phase": "Joined", "reason": ""}
    known = {"node_status_node": node, "__node_status_cluster": {"nodes": ROWS, **cluster}}
    (directory / "vars.json").write_text(json.dumps(known), encoding="utf-8")
    (directory / "book.yml").write_text(BOOK.format(role=ROLE), encoding="utf-8")
    argv = [BIN / "ansible-playbook", "-i", "w-1,w-2,w-3,w-4,", "-e", "@vars.json", "book.yml"]
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: path.read_text(encoding="utf-8").splitlines() for path in directory.glob("*.j2.txt")}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What is printed of a cluster with machines that wait and a policy with exceptions."""
    return rendered(tmp_path_factory.mktemp("status"), waiting=WAITING, policy=POLICY)


def test_the_table_says_how_nodes_stand_and_calls_for_those_that_are_bad(printed: dict[str, list[str]]) -> None:
    header, *lines = printed["table.j2.txt"]
    start = header.index("ATTESTED")
    table = {line.split()[0]: line[start : start + 8].strip() for line in lines[: len(ROWS)]}
    assert table == {"w-1": "good", "w-2": "failed", "w-3": "overdue", "w-4": "-"}
    assert printed["needed.j2.txt"] == [
        "A person is needed:",
        "w-2: refused; next: attested explain X",
        "w-3: overdue; next: push",
    ]


def test_machines_that_wait_are_told_with_the_command_that_lets_them_in(printed: dict[str, list[str]]) -> None:
    assert [line for line in printed["table.j2.txt"] if line.startswith("WAITS")] == [
        "WAITS: ek-7 (claims w-7) since 2026-11-20T08:00:00Z: approve -e confirm=ek-7 -e node=NAME",
        "WAITS: ek-8 (claims no name) since 2026-11-21T08:00:00Z: approve -e confirm=ek-8 -e node=NAME",
    ]


def test_a_refused_node_is_told_with_register_and_event(printed: dict[str, list[str]]) -> None:
    at = printed["table.j2.txt"].index("REFUSED w-4: PCR_MISMATCH, 3 times, the last at 2026-11-21T12:00:00Z")
    assert printed["table.j2.txt"][at + 1 : at + 3] == [
        "  expected a boot that a profile allows, got PCR 0: expected a, got b",
        "  PCR 0 event 1: expected c, got d",
    ]


def test_a_refused_node_that_waits_for_a_person_names_the_next_command(tmp_path: Path) -> None:
    said = rendered(tmp_path, needs_person=True)["needed.j2.txt"]
    assert said[-1] == "w-4: the cluster refused it by PCR_MISMATCH, see REFUSED above; next: policy"


def test_an_exception_is_told_until_somebody_takes_it_away(printed: dict[str, list[str]]) -> None:
    assert printed["policy.j2.txt"] == [
        "POLICY generation 7, profiles base, next, 2 revoked, recorded by cp-1: 7, cp-2: 6",
        "EXCEPTION odd on w-1, w-2 until 2999-01-01T00:00:00Z: firmware of w-1 first",
        "EXCEPTION old on w-3 until 2001-01-01T00:00:00Z (over): was in a hurry",
    ]


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        pytest.param(
            {},
            "POLICY none: every machine is refused. Run ansible-playbook attested.kubernetes.policy",
            id="none was signed yet",
        ),
        pytest.param(
            {**POLICY, "seen_by": {}, "exceptions": []},
            "POLICY generation 7, profiles base, next, 2 revoked, not recorded yet",
            id="no control plane has seen it",
        ),
    ],
)
def test_a_policy_that_is_not_in_force_is_told(tmp_path: Path, policy: dict[str, Any], line: str) -> None:
    assert rendered(tmp_path, waiting=[], policy=policy)["policy.j2.txt"] == [line]


def test_an_object_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    policy = {**POLICY, "exceptions": [], "unreadable": ["MeasurementProfile odd: expected a list"]}
    lines = rendered(tmp_path, waiting=[], policy=policy)["policy.j2.txt"]
    assert lines[1:] == ["UNREADABLE, admits no machine: MeasurementProfile odd: expected a list"]
