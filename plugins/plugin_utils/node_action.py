# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of actions that stand in for a module where the playbook runs on the node itself (ADR 0039)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.plugins.action.normal import ActionModule as ByModule

from .action import Answering

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..module_utils.adapter import Form

_HERE = frozenset({"local", "ansible.builtin.local"})


class NodeAction(Answering, ByModule):
    """The work of the module of the same name, here where that is the same, else by the module as without an action.

    A subclass sets ``FORM``, which is the module's own. None of them holds a key: those keep a process of their own.
    """

    FORM: ClassVar[Form]

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Answer Ansible as the module does."""
        if not self.runs_here(task_vars or {}):
            answer: dict[str, Any] = super().run(tmp, task_vars)
            return answer
        # plain values only, as they come from a module
        here: dict[str, Any] = json.loads(json.dumps(self.answer(self.FORM.spec, self.FORM.perform)))
        return here

    def runs_here(self, task_vars: Mapping[str, Any]) -> bool:
        """Say whether this process is what the module's would be.

        That is: on this machine, as this user, in the foreground, in this environment, by this Python.
        """
        environment: dict[str, Any] = {}
        self._compute_environment_string(environment)
        return (
            self._connection.transport in _HERE
            and self._connection.become is None
            and not self._task.async_val
            and not environment
            and _is_this_python(self._interpreter(task_vars))
        )

    def _interpreter(self, task_vars: Mapping[str, Any]) -> str:
        """Return the Python that the module would be run by, nothing where Ansible would look for one."""
        delegate = self._task.delegate_to
        variables = task_vars["ansible_delegated_vars"][delegate] if delegate else task_vars
        return str(self._templar.template(variables.get("ansible_python_interpreter", "")))


def _is_this_python(path: str) -> bool:
    """Say whether ``path`` is what runs this, by any name beside it: a link from elsewhere has other libraries."""
    wanted, here = Path(path), Path(sys.executable)
    try:
        return wanted.parent.resolve() == here.parent.resolve() and wanted.samefile(here)
    except OSError:
        return False
