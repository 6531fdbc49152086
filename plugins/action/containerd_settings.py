# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``containerd_settings``: refused settings never leave the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.containerd import require_allowed
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.modules.containerd_settings import FORM
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_action import ProcessAction

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(ProcessAction):
    """See the module. It has credentials of registries, so it runs in a process of its own."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Refuse here what the module would refuse: options may hold a password, and -vvv shows a module's options."""
        checked = self.answer(FORM.spec, _check)
        return checked if checked.get("failed") else super().run(tmp, task_vars)


def _check(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # it changes nothing
    require_allowed(params)
    return Result()
