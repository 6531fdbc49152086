# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run many cases in one ansible-playbook: each case is a play with its own variables.

A case records values with the task `record`, an action plugin that starts no process: a start of ansible-playbook costs
a second of CPU, a task with a module half a second on each host.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RECORD = """import json
import pathlib

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        place = pathlib.Path(task_vars["playbook_dir"], f"{task_vars['case_number']}-{task_vars['inventory_hostname']}")
        place.with_name(f"{place.name}.record").write_text(json.dumps(self._task.args), encoding="utf-8")
        return {}
"""
FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Tasks with the variables of a site, which override those of the play, like `-e`."""

    tasks: Sequence[Mapping[str, Any]]
    variables: Mapping[str, Any] = field(default_factory=dict)
    hosts: str = "all"


def run_cases(
    directory: Path, cases: Mapping[str, Case], *, hosts: Mapping[str, Any] | None = None, **play: Any
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return by case and host the values of the last `record`, or the message of a failed task as `failed`.

    Without ``hosts``, the directory must have its inventory as `hosts.yml`.
    """
    (directory / "action_plugins").mkdir()
    (directory / "action_plugins" / "record.py").write_text(RECORD, encoding="utf-8")
    if hosts is not None:
        (directory / "hosts.yml").write_text(yaml.safe_dump(dict(hosts)), encoding="utf-8")
    failed = {"record": {FAILED: "{{ ansible_failed_result.msg }}"}}
    book = [
        {
            "hosts": case.hosts,
            "gather_facts": False,
            **play,
            "tasks": [
                {
                    "block": list(case.tasks),
                    "rescue": [failed],
                    "vars": {**case.variables, "case_number": number, "ansible_connection": "local"},
                }
            ],
        }
        for number, case in enumerate(cases.values())
    ]
    (directory / "book.yml").write_text(yaml.safe_dump(book), encoding="utf-8")
    argv = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "hosts.yml", "book.yml"]
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in cases}
    for file in directory.glob("*.record"):
        number, _dash, host = file.name.removesuffix(".record").partition("-")
        found[list(cases)[int(number)]][host] = json.loads(file.read_text(encoding="utf-8"))
    return found
