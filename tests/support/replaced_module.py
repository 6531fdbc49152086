# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace modules by functions of a file, which ansible-playbook calls itself.

An action plugin replaces the module of the same name. It costs a fork, while a module costs five shells and two
interpreters. The file is loaded once per run, so it may import `module_utils`. For the same reason the programs that
copied playbooks run are started by ansible-playbook itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ACTION = """import importlib.util
import json

from ansible.plugins.action import ActionBase

spec = importlib.util.spec_from_file_location("replacement", {program!r})
replacement = importlib.util.module_from_spec(spec)
spec.loader.exec_module(replacement)


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        self.validate_argument_spec(dict.fromkeys({options!r}, {{"type": "raw"}}))
        host = self._connection._shell.get_option("remote_tmp").rsplit("/", 1)[-1]
        self._low_level_execute_command(":")  # a host that does not answer is unreachable, as it is for a module
        params = json.loads(json.dumps(self._task.args))
        try:
            done = replacement.call({root!r}, {name!r}, host, params)
        except SystemExit as error:
            return {{"failed": True, "msg": str(error)}}
        return json.loads(json.dumps(done))
"""

COMMAND = """import subprocess

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        self.validate_argument_spec({"argv": {"type": "list", "elements": "str", "required": True}})
        none = {"rc": 0, "stdout": "", "stderr": "", "stdout_lines": [], "stderr_lines": []}
        if self._task.check_mode:
            return {"changed": False, "skipped": True, **none}
        self._low_level_execute_command(":")
        argv = [str(word) for word in self._task.args["argv"]]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        outputs = {"stdout": done.stdout.rstrip("\\r\\n"), "stderr": done.stderr.rstrip("\\r\\n")}
        lines = {f"{name}_lines": text.splitlines() for name, text in outputs.items()}
        wrong = {"failed": True, "msg": "non-zero return code"} if done.returncode else {}
        return {"changed": True, "cmd": argv, "rc": done.returncode, **outputs, **lines, **wrong}
"""


def replace_modules(collection: Path, program: Path, root: Path, options: Mapping[str, Sequence[str]]) -> None:
    """Replace the modules in ``options`` by ``program``'s ``call(root, name, host, params)``.

    The last part of a host's variable ansible_remote_tmp identifies it, wherever a task is delegated to.
    """
    plugins = collection / "plugins"
    (plugins / "action").mkdir(parents=True)
    (plugins / "module_utils").symlink_to(ROOT / "plugins" / "module_utils")
    for name, known in options.items():
        words = {"program": str(program), "root": str(root), "name": name, "options": tuple(known)}
        (plugins / "action" / f"{name}.py").write_text(ACTION.format(**words), encoding="utf-8")
    (plugins / "action" / "command.py").write_text(COMMAND, encoding="utf-8")
    for book in (*collection.glob("playbooks/**/*.yml"), *collection.glob("roles/**/tasks/*.yml")):
        if not book.resolve().is_relative_to(collection.resolve()):
            continue  # a link to the real role
        text = book.read_text(encoding="utf-8")
        book.write_text(text.replace("ansible.builtin.command:", "attested.kubernetes.command:"), encoding="utf-8")
