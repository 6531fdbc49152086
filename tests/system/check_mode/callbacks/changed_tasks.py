# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback ``changed_tasks``: which task changed which host, one JSON list a line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.plugins.callback import CallbackBase

if TYPE_CHECKING:
    from ansible.executor.task_result import CallbackTaskResult


DOCUMENTATION = r"""
name: changed_tasks
type: notification
short_description: Writes down which task changed which host
description: A line for each change, of E(ATTESTED_CHANGED_TASKS).
author: The attested.kubernetes authors (@attested-kubernetes)
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no types
    """Appends; who runs the playbook reads the file afterwards."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "changed_tasks"
    CALLBACK_NEEDS_ENABLED = True

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """Keep what says that it changed something."""
        if result.result.get("changed"):
            with Path(os.environ["ATTESTED_CHANGED_TASKS"]).open("a", encoding="utf-8") as file:
                file.write(json.dumps([result.host.get_name(), result.task.get_name()]) + "\n")
