# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A callback of Ansible that lets a fault come before a task on a host: of this playbook, or of the machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.plugins.callback import CallbackBase
from ansible_collections.attested.kubernetes.tests.support.attested_matrix import COMMANDS

if TYPE_CHECKING:
    from ansible.inventory.host import Host
    from ansible.playbook.task import Task

DOCUMENTATION = """
name: strike
type: aggregate
short_description: Let a fault come before a task
description: ATTESTED_STRIKE has the host, the task, the fault, the program that enters a machine, and a file to make.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no types
    """Strikes once, and notes it in the file."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "strike"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        """Read the order."""
        super().__init__()
        self._order = json.loads(os.environ["ATTESTED_STRIKE"])

    def v2_runner_on_start(self, host: Host, task: Task) -> None:
        """Strike, if it is the host and the task."""
        note = Path(self._order["note"])
        name = task.get_name().rpartition(" : ")[2]
        if note.exists() or (host.get_name(), name) != (self._order["host"], self._order["task"]):
            return
        if self._order["fault"] == "kill":
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        for command in COMMANDS[self._order["fault"]]:
            argv = [self._order["enter"], "exec", host.get_name(), *command]
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        note.touch()
