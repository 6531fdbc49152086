# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of this collection's actions: options in, one call in Ansible's own process, result out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.plugins.action import ActionBase
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import failure_of, result_of
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, Run
    from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result


class Answering(ActionBase):
    """Runs one call with the task's options, and returns its result."""

    def answer(self, spec: ArgumentSpec, work: Run) -> dict[str, Any]:
        """Return the result of ``work``, or its failure with msg, reason, hint and command.

        ``work`` gets plain values: Ansible's own values have tags, which YAML refuses to write.
        """
        self._load_name = self._task.action  # the message about a wrong option names the module
        _checked, options = self.validate_argument_spec(**spec.arguments())
        params = json.loads(json.dumps(options))
        try:
            result = work(params, bool(self._task.check_mode))
        except AttestedError as error:
            return {"failed": True} | self.failure(error)
        return result_of(result, diff_mode=bool(self._task.diff))

    def failure(self, error: AttestedError) -> dict[str, Any]:
        """Return the keys of a failed result; a subclass may add keys for its own errors."""
        return failure_of(error)


class AttestedAction(Answering):
    """An action that works on the admin's machine, whatever the connection of the task is.

    A subclass sets ``SPEC`` and defines `perform`.
    """

    SPEC: ClassVar[ArgumentSpec]
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Do the work; raises `AttestedError`."""
        raise NotImplementedError

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the result to Ansible."""
        answer: dict[str, Any] = super().run(tmp, task_vars)
        self.task_vars = task_vars or {}
        return answer | self.answer(self.SPEC, self.perform)
