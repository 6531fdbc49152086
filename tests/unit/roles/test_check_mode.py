# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode names what a run would change: no task that changes is silent in it, and none acts.

What can be held without a machine; `tests/system/check_mode` compares both on one. Roles of the lab are no admin's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.written_tasks import ROOT, files, tasks_of

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = tuple(f"ansible.builtin.{name}" for name in ("command", "shell", "raw", "script", "expect"))
ONLY_IN_CHECK_MODE = "{{ false if ansible_check_mode else omit }}"
"""Not plainly false: where a play says `check_mode` by itself, `ansible_check_mode` is not set and nothing may run."""
STAND_INS = ("--dry-run={{ 'server' if ansible_check_mode else 'none' }}", "['true'] if ansible_check_mode else")

# files that check mode never comes to, and who names their changes in it
NEVER_CHECKED = {
    "roles/rotation/tasks/forget.yml": "the plan of roles/rotation/tasks/main.yml",
    "roles/rotation/tasks/issue.yml": "the plan of roles/rotation/tasks/main.yml",
    "roles/rotation/tasks/workload.yml": "the plan of roles/rotation/tasks/main.yml",
}
# tasks that check mode skips and a run may not: no change, or one that is named elsewhere
SKIPPED = {
    "Print the remaining phases": "names the phases, in check mode only",
    "Run the phases in order": "named by the task before it",
    "Start the bootstrapper": "never counts as a change",
    "Apply the reinstated identities": "follows from the policy, whose diff names the keys",
    "Record the control plane's first evidence": "reads, and never counts as a change",
    "Wait until the machine is a node": "reads",
    "Report why the machine is not a node": "fails or does nothing",
    "Fetch the image": "follows from the image, which the task before names",
    "Sign the image": "follows from the image",
    "Compute the profile of the image": "follows from the image",
    "Make the image the next boot": "follows from the image, which the task before names",
    "Read what the machine boots next": "reads",
    "Check that an active profile allows the next boot": "fails or does nothing",
    "Bring the node back": "follows from the reboot, which the task before names",
    "Print the profiles that no node uses": "prints",
    "Rotate the CAs whose keys the machine held": "follows from the revocation; has its own check mode",
}


TASKS = [(path.relative_to(ROOT), task) for path in files() for task in tasks_of(path)]
RUNNERS = [
    pytest.param(path, task, id=f"{path}: {task['name']}")
    for path, task in TASKS
    if any(kind in task for kind in PROGRAMS)
]


def conditions(task: dict[str, Any]) -> list[str]:
    """Return what a task is run under."""
    when = task.get("when", [])
    return [str(one) for one in (when if isinstance(when, list) else [when])]


def test_there_are_tasks_to_hold() -> None:
    """A wrong folder would hold nothing."""
    assert len(TASKS) > 300
    assert len(RUNNERS) > 15
    assert {str(path) for path, _task in TASKS} >= set(NEVER_CHECKED)


@pytest.mark.parametrize(("path", "task"), RUNNERS)
def test_a_program_that_changes_is_named_in_check_mode_and_does_nothing_in_it(path: Path, task: dict[str, Any]) -> None:
    """One that only reads runs in both; else what comes later would know less, and name less."""
    if str(path) in NEVER_CHECKED:
        assert task.get("check_mode") is None
    elif task["changed_when"] is False:
        assert task.get("check_mode") is False
    else:
        assert task.get("check_mode") == ONLY_IN_CHECK_MODE
        words = str(next(task[kind] for kind in PROGRAMS if kind in task)).replace('\\"', '"')
        assert [one for one in STAND_INS if one in words.replace("\\'", "'")]


def test_nothing_is_left_out_of_check_mode_that_changes() -> None:
    """A condition that check mode fails hides what a run does; one that check mode meets hides nothing."""
    met = " or ansible_check_mode"
    silent = {
        task["name"]
        for _path, task in TASKS
        for one in conditions(task)
        if "ansible_check_mode" in one.removesuffix(met)
    }
    assert silent <= set(SKIPPED)


@pytest.mark.parametrize("name", SKIPPED)
def test_every_exception_is_still_one(name: str) -> None:
    """What is named here and no longer skipped goes."""
    found = [task for _path, task in TASKS if task.get("name") == name]
    text = str([(conditions(task), task.get("changed_when")) for task in found])
    assert "ansible_check_mode" in text
