# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the table of status says of nodes that failed, and whom it calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
      loop: [table.j2, needed.j2]
      run_once: true
"""
ROWS = [
    {"name": "w-1", "standing": "EvidenceGood", "standing_message": "fine"},
    {"name": "w-2", "standing": "ReattestationFailed", "standing_message": "refused; next: attested explain X"},
    {"name": "w-3", "standing": "ReattestationOverdue", "standing_message": "overdue; next: push"},
    {"name": "w-4", "standing": ""},
]


def rendered(tmp_path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the table (node to column ATTESTED) and the lines of those that need a person."""
    node = {"needs_person": False, "to_do": "Nothing.", "phase": "Joined"}
    known = {"node_status_node": node, "__node_status_cluster": {"nodes": ROWS, "waiting": []}}
    (tmp_path / "vars.json").write_text(json.dumps(known), encoding="utf-8")
    (tmp_path / "book.yml").write_text(BOOK.format(role=ROLE), encoding="utf-8")
    argv = [BIN / "ansible-playbook", "-i", "w-1,w-2,w-3,w-4,", "-e", "@vars.json", "book.yml"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    header, *lines = (tmp_path / "table.j2.txt").read_text(encoding="utf-8").splitlines()
    start = header.index("ATTESTED")
    table = {line.split()[0]: line[start : start + 8].strip() for line in lines}
    return table, (tmp_path / "needed.j2.txt").read_text(encoding="utf-8").splitlines()


def test_the_table_says_how_nodes_stand_and_calls_for_those_that_are_bad(tmp_path: Path) -> None:
    table, needed = rendered(tmp_path)
    assert table == {"w-1": "good", "w-2": "failed", "w-3": "overdue", "w-4": "-"}
    assert needed == [
        "A person is needed:",
        "w-2: refused; next: attested explain X",
        "w-3: overdue; next: push",
    ]
