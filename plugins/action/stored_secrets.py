# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``stored_secrets``: encrypt the Secrets again in batches, and print the progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_port import run_module_there

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODULE = "attested.kubernetes.stored_secrets"


class ActionModule(AttestedAction):
    """It is an action, because a module cannot print while it runs."""

    SPEC = ArgumentSpec(
        options={
            "in_force": {"type": "str", "required": True},
            "most": {"type": "int", "default": 200},
            "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
        }
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Run batches until no Secret is left; a batch that writes nothing fails on the node, so the loop ends."""
        done = 0
        while True:
            answer = run_module_there(self._execute, _MODULE, params)
            done += int(answer["done"])
            left, total = int(answer["left"]), int(answer["total"])
            if check_mode or not left:
                return Result(
                    changed=bool(answer["changed"]) or done > 0, values={"done": done, "left": left, "total": total}
                )
            self._display.display(f"  {done} Secrets are under {params['in_force']}, {left} of {total} are left")

    def _execute(self, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self._execute_module(
            module_name=module, module_args=dict(arguments), task_vars=self.task_vars
        )
        return result
