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
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import Answering

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
    from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import Form

_HERE = frozenset({"local", "ansible.builtin.local"})
_ROOT = Path(__file__).parents[5]
_MODULES = "ansible_collections.attested.kubernetes.plugins.modules"
_LONGEST_SECONDS = 86400.0
"""Of a module: each wait of its own ends long before."""
_LAUNCH = """
import runpy, sys
root, module = sys.argv[1:]
sys.path.insert(0, root)
sys.argv = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class OnNode(Answering, ByModule):
    """The work of the module of the same name without Ansible's archive of it, where the playbook runs on the node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Answer Ansible as the module does."""
        answer: dict[str, Any] = self.work_here() if self.runs_here(task_vars or {}) else super().run(tmp, task_vars)
        return answer

    def work_here(self) -> dict[str, Any]:
        """Return the module's answer."""
        raise NotImplementedError

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


class NodeAction(OnNode):
    """The work of a module in this process. A subclass sets ``FORM``, which is the module's own; none holds a key."""

    FORM: ClassVar[Form]

    def work_here(self) -> dict[str, Any]:
        """Do the work; plain values only, as they come from a module."""
        here: dict[str, Any] = json.loads(json.dumps(self.answer(self.FORM.spec, self.FORM.perform)))
        return here


class ProcessAction(OnNode):
    """The work of a module that holds a key: in a process of its own, which starts empty, does that alone and ends.

    It is the installed module as it stands; an archive would be packed, unpacked and compiled anew for each task.
    """

    def work_here(self) -> dict[str, Any]:
        """Run the module, which reads its options from its standard input and prints its answer."""
        options = {
            **self._task.args,
            "_ansible_check_mode": bool(self._task.check_mode),
            "_ansible_diff": bool(self._task.diff),
            "_ansible_no_log": True,  # of what it is called with: no line in the system's journal
        }
        module = f"{_MODULES}.{self._task.action.rpartition('.')[2]}"
        done = SystemRunner().run(
            [sys.executable, "-c", _LAUNCH, str(_ROOT), module],
            stdin=json.dumps({"ANSIBLE_MODULE_ARGS": options}).encode(),
            timeout_seconds=_LONGEST_SECONDS,
            check=False,
        )
        return _answer_of(done)


def _answer_of(done: CommandResult) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = (one.decode("utf-8", "replace") for one in (done.stdout, done.stderr))
        told = dict(zip(("module_stdout", "module_stderr"), said, strict=True), rc=done.returncode)
        return {"failed": True, "msg": "expected the answer of a module, see module_stderr", **told}
    answer.pop("invocation", None)
    return answer


def _is_this_python(path: str) -> bool:
    """Say whether ``path`` is what runs this, by any name beside it: a link from elsewhere has other libraries."""
    wanted, here = Path(path), Path(sys.executable)
    try:
        return wanted.parent.resolve() == here.parent.resolve() and wanted.samefile(here)
    except OSError:
        return False
