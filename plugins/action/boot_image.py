# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``boot_image``: it signs where the playbook runs, since the key is opened in memory only."""

from __future__ import annotations

from functools import partial
from typing import Any

from ansible.parsing.vault import is_encrypted
from ansible.plugins.action.normal import ActionModule as ByModule
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_image import run_signed
from ansible_collections.attested.kubernetes.plugins.modules.boot_image import SPEC
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import Answering
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault


class ActionModule(Answering, ByModule):
    """All other states are the module's, on the machine of the task."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Answer Ansible."""
        if self._task.args.get("state") == "signed":
            return self.answer(SPEC, partial(run_signed, open_key=_opened))
        answer: dict[str, Any] = super().run(tmp, task_vars)
        return answer


def _opened(key: bytes) -> bytes:
    return AnsibleVault().decrypt(key) if is_encrypted(key) else key
