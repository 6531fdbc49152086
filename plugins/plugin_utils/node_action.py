# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of actions that replace a module if the playbook runs on the node itself (ADR 0039)."""

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
"""The time limit of a module; each of its own waits ends long before."""
_LAUNCH = """
import runpy, sys
root, module = sys.argv[1:]
sys.path.insert(0, root)
sys.argv = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class OnNode(Answering, ByModule):
    """Does the work of the module of the same name; if the playbook runs on the node, without Ansible's archive."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result to Ansible."""
        answer: dict[str, Any] = self.work_here() if self.runs_here(task_vars or {}) else super().run(tmp, task_vars)
        return answer

    def work_here(self) -> dict[str, Any]:
        """Return the module's result."""
        raise NotImplementedError

    def runs_here(self, task_vars: Mapping[str, Any]) -> bool:
        """Return whether the module would run in the same way as this process.

        That is: on this machine, as this user, in the foreground, in this environment, with this Python.
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
        """Return the Python that would run the module, empty if Ansible would search for one."""
        delegate = self._task.delegate_to
        variables = task_vars["ansible_delegated_vars"][delegate] if delegate else task_vars
        return str(self._templar.template(variables.get("ansible_python_interpreter", "")))


class NodeAction(OnNode):
    """Does the work of a module that has no key in this process. A subclass sets ``FORM``, the module's own."""

    FORM: ClassVar[Form]

    def work_here(self) -> dict[str, Any]:
        """Return the result with plain values only, like a module's."""
        here: dict[str, Any] = json.loads(json.dumps(self.answer(self.FORM.spec, self.FORM.perform)))
        return here


class ProcessAction(OnNode):
    """Does the work of a module that has a key, in a new process that does nothing else.

    The process runs the installed module. Ansible would pack, unpack and compile an archive again for each task.
    """

    def work_here(self) -> dict[str, Any]:
        """Run the module, which reads its options from its standard input and prints its result."""
        options = {
            **self._task.args,
            "_ansible_check_mode": bool(self._task.check_mode),
            "_ansible_diff": bool(self._task.diff),
            "_ansible_no_log": True,  # the module must not write its options to the system's journal
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
        outputs = (one.decode("utf-8", "replace") for one in (done.stdout, done.stderr))
        streams = dict(zip(("module_stdout", "module_stderr"), outputs, strict=True), rc=done.returncode)
        return {"failed": True, "msg": "expected the answer of a module, see module_stderr", **streams}
    answer.pop("invocation", None)
    return answer


def _is_this_python(path: str) -> bool:
    """Return whether ``path`` is the running Python, in the same directory: a link elsewhere has other libraries."""
    wanted, here = Path(path), Path(sys.executable)
    try:
        return wanted.parent.resolve() == here.parent.resolve() and wanted.samefile(here)
    except OSError:
        return False
