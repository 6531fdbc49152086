# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What check mode and a run are compared by: every playbook is compared or left out by name, and changes are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ansible_collections.attested.kubernetes.tests.support.foreseen import (
    AFTERWARDS,
    APART,
    BY_PHASES,
    CHANGES,
    LIFE,
    changes_in,
    compared,
    settings,
)

ROOT = Path(__file__).resolve().parents[2]
PLAY = [
    {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"name": "Changes", "ansible.builtin.command": {"argv": ["true"]}, "changed_when": True},
            {"name": "Reads", "ansible.builtin.command": {"argv": ["true"]}, "changed_when": False},
        ],
    }
]


def test_every_playbook_is_compared_or_left_out_with_a_reason() -> None:
    """A new playbook has to be put into one of the two."""
    compared_ones = {words[0] for words in LIFE}
    assert {path.stem for path in ROOT.glob("playbooks/*.yml")} == compared_ones | set(APART)
    assert not compared_ones & set(APART)
    assert compared_ones >= (CHANGES | BY_PHASES)


def test_a_run_tells_what_changed_and_nothing_else(tmp_path: Path) -> None:
    """By the very callback, and by Ansible itself."""
    (tmp_path / "play.yml").write_text(json.dumps(PLAY))
    program = Path(sys.executable).parent / "ansible-playbook"
    argv = [program, "-i", "a,b", "-e", f"ansible_python_interpreter={sys.executable}", "play.yml"]
    env = {**os.environ, **settings(tmp_path / "told")}
    subprocess.run(argv, cwd=tmp_path, env=env, check=True, capture_output=True)
    assert changes_in(tmp_path / "told") == {("a", "Changes"), ("b", "Changes")}
    assert changes_in(tmp_path / "none") == set()


def test_where_a_run_goes_by_phases_the_hosts_are_compared() -> None:
    changes = frozenset({("cp-1", "What is left to do"), ("cp-2", "A phase")})
    assert compared("node", changes) == changes
    assert compared("rotate_encryption_key", changes) == {"cp-1", "cp-2"}


def test_what_a_run_makes_first_is_left_out_of_that_run_alone() -> None:
    """By a task's own name, whichever role has it; a name that no task has any more is noticed."""
    record = ("cp-1", "attested.kubernetes.attestation_policy : Update the policy record of each control plane")
    changes = frozenset({record, ("cp-1", "Request the admin's client certificate")})
    assert compared("init", changes) == changes - {record}
    assert compared("policy", changes) == changes
    texts = [path.read_text() for path in (*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/*.yml"))]
    for name in frozenset().union(*AFTERWARDS.values()):
        assert any(f"- name: {name}\n" in text for text in texts)
