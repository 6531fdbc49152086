# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A callback of Ansible that lets faults come before tasks on hosts: of this playbook, or of the machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.plugins.callback import CallbackBase
from ansible_collections.attested.kubernetes.tests.support.attested_matrix import BOOT_ID, COMMANDS

if TYPE_CHECKING:
    from ansible.inventory.host import Host
    from ansible.playbook.task import Task

COMMAND_SECONDS = 15

DOCUMENTATION = """
name: strike
type: aggregate
short_description: Let faults come before tasks
description: ATTESTED_STRIKE has the program that enters a machine, and a file of orders with host, task and fault.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no types
    """Obeys the orders one after the other, and takes each out of the file."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "strike"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        """Keep where the orders are."""
        super().__init__()
        given = json.loads(os.environ["ATTESTED_STRIKE"])
        self._enter, self._file = given["enter"], Path(given["orders"])

    def v2_runner_on_start(self, host: Host, task: Task) -> None:
        """Strike, if the first order is for the host and the task."""
        orders = json.loads(self._file.read_text(encoding="utf-8"))
        name = task.get_name().rpartition(" : ")[2]
        if not orders or (host.get_name(), name) != (orders[0]["host"], orders[0]["task"]):
            return
        fault = orders[0]["fault"]
        if fault != "kill":
            boot = self._inside(host, "cat", str(BOOT_ID))
            for command in COMMANDS[fault]:
                self._inside(host, *command, check=fault == "cut")
            while fault == "reboot" and self._inside(host, "cat", str(BOOT_ID)) == boot:
                time.sleep(0.05)  # the task does not begin on a machine that still goes down
        self._file.write_text(json.dumps(orders[1:]), encoding="utf-8")
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

    def _inside(self, host: Host, *words: str, check: bool = False) -> bytes:
        """Run a command in a machine; return its output, nothing if the machine goes down meanwhile."""
        argv = [self._enter, "exec", host.get_name(), *words]
        try:
            return subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, check=check, timeout=COMMAND_SECONDS
            ).stdout
        except subprocess.TimeoutExpired:  # podman may wait forever for a command of a machine that went down
            if check:
                raise
            return b""
