# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to one node over Ansible's own connection: it runs the module ``attestation_info`` on the node."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.attest import Testimony
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import Challenge
    from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose

    Execute = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]

MODULE = "attested.kubernetes.attestation_info"


class AnsibleNodePort:
    """Implements `admin.attest.NodePort` by ``execute(module, arguments) -> result``."""

    def __init__(self, execute: Execute, options: Mapping[str, Any]) -> None:
        """Store the function that runs a module, and the options of every call (node_config, timeouts)."""
        self._execute = execute
        self._options = dict(options)
        self.described: Mapping[str, Any] = {}

    def identify(self, purpose: Purpose) -> bytes:
        """Return the node's challenge request, and store its other fields (shown, never judged)."""
        self.described = self._call(purpose=purpose.value)
        return base64.b64decode(self.described["challenge_request"])

    def answer(self, purpose: Purpose, challenge: Challenge) -> Testimony:
        """Return the node's answer."""
        answer = self._call(purpose=purpose.value, challenge=base64.b64encode(challenge.to_bytes()).decode("ascii"))
        return Testimony(
            binding=base64.b64decode(answer["binding"]),
            event_logs=base64.b64decode(answer["event_logs"]),
            handle=answer.get("handle", ""),
        )

    def _call(self, **arguments: str) -> Mapping[str, Any]:
        return run_module_there(self._execute, MODULE, {**self._options, **arguments})


def run_module_there(execute: Execute, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result of ``module`` on the node; a failure is raised as an error with the same reason."""
    result = execute(module, arguments)
    if not result.get("failed") and not result.get("unreachable"):
        return result
    code = str(result.get("reason", ""))
    message = str(result.get("msg") or result.get("module_stderr") or "no message")
    known = code in Reason.__members__
    raise SystemFault(
        message if known else f"expected {module} to run on the node, it failed: {message[-2000:]}",
        reason=Reason[code] if known else Reason.MODULE_FAILED,
        hint=str(result["hint"]) if known and result.get("hint") else None,
    )
