# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whoever has an admin's credential on a control plane asks the API server beside it, not the endpoint's name.

The name may still lead to a control plane that was lost, or that is in other hands and answers nothing.
"""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.written_tasks import ROOT, files, tasks_of

CREDENTIAL = "--kubeconfig=/etc/kubernetes/admin.conf"
BESIDE = "--server=https://127.0.0.1:6443"


def words(task: dict[str, Any]) -> list[str]:
    """Return the command of a task."""
    return list(task.get("ansible.builtin.command", {}).get("argv", []))


COMMANDS = [
    pytest.param(words(task), id=f"{path.relative_to(ROOT)}: {task['name']}")
    for path in files()
    for task in tasks_of(path)
    if "kubectl" in words(task)
]


@pytest.mark.parametrize("argv", COMMANDS)
def test_a_command_asks_the_api_server_of_its_own_machine(argv: list[str]) -> None:
    assert (CREDENTIAL in argv, BESIDE in argv) == (True, True)


def test_none_is_overlooked() -> None:
    written = sum(path.read_text(encoding="utf-8").count("- kubectl\n") for path in files())
    assert len(COMMANDS) == written > 10
