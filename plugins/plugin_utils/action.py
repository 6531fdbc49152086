# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of our action plugins: the same ``run(params, check_mode)``, in the process that runs the playbook."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.plugins.action import ActionBase

from ..module_utils.adapter import ArgumentSpec, Result, failure_of, result_of
from ..module_utils.errors import AttestedError

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE = frozenset({"local", "ansible.builtin.local"})


class AttestedAction(ActionBase):
    """Validate the options, then do the work here, or hand it to the module of the same name.

    A subclass sets ``SPEC`` and defines `perform`. With ``MODULE`` (its fully qualified name) the work is done
    here only where here *is* the target (`runs_here`); without it the action always works on the admin's side.
    """

    SPEC: ClassVar[ArgumentSpec]
    MODULE: ClassVar[str | None] = None
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Do the work; raises `AttestedError`."""
        raise NotImplementedError

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Answer Ansible: the module's result, or the failure with msg, reason, hint and command."""
        answer: dict[str, Any] = super().run(tmp, task_vars)
        if self.MODULE and not self.runs_here():
            return {**answer, **self._execute_module(self.MODULE, task_vars=task_vars)}
        _checked, options = self.validate_argument_spec(**self.SPEC.arguments())
        params = json.loads(json.dumps(options))  # plain values: Ansible tags its own, and YAML refuses to write those
        self.task_vars = task_vars or {}
        try:
            result = self.perform(params, bool(self._task.check_mode))
        except AttestedError as error:
            return answer | {"failed": True} | self.failure(error)
        return answer | result_of(result, diff_mode=bool(self._task.diff))

    def failure(self, error: AttestedError) -> dict[str, Any]:
        """Return the keys of a failed result; a subclass may know more of its own errors."""
        return failure_of(error)

    def runs_here(self) -> bool:
        """Say whether this process may stand in for the module: local connection and not become.

        Another user's rights cannot be had inside a running process. (Async is refused by ``_supports_async``.)
        """
        return self._connection.transport in _HERE and not self._play_context.become
