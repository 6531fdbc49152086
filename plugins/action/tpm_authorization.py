# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``tpm_authorization``: auth values leave the admin's machine sealed to a key of the node."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    tpm_spec,
    tpm_timeout_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.authorization import parse_auth, seal_auths
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import RH_ENDORSEMENT, RH_OWNER
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_port import run_module_there

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODULE = "attested.kubernetes.tpm_authorization"
_HIERARCHIES = {"endorsement": RH_ENDORSEMENT, "owner": RH_OWNER}


class ActionModule(AttestedAction):
    """Read the auth values from variables; they are no arguments, because Ansible shows arguments."""

    SPEC = ArgumentSpec(
        options={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "owner_variable": {"type": "str", "default": "attested_tpm_owner_auth"},
            "endorsement_variable": {"type": "str", "default": "attested_tpm_endorsement_auth"},
        }
    ).merged(tpm_spec(), tpm_timeout_spec())

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Get the hierarchies with a password from the node, and send their auth values."""
        reached = {name: params[name] for name in ("tcti", "tpm_timeout_seconds")}
        if params["state"] == "absent":
            gone = self._run({**reached, "state": "absent"})
            return Result(changed=bool(gone["changed"]), values={"held": gone["held"]})
        known = {name: self._value(params[f"{name}_variable"]) for name in _HIERARCHIES}
        if not any(known.values()):
            return Result(values={"held": []})
        offered = self._run(reached)
        demanded = [str(name) for name in offered["demanded"]]
        auths = {_HIERARCHIES[name]: value for name in demanded if (value := known[name])}
        if check_mode or not auths:
            given = {name for name in demanded if known[name]}
            held = {str(name) for name in offered["held"]}
            return Result(changed=not given <= held, values={"held": sorted(held), "demanded": demanded})
        box = seal_auths(auths, public=base64.b64decode(offered["offer"]))
        sealed = base64.b64encode(box).decode("ascii")
        taken = self._run({**reached, "handle": offered["handle"], "sealed": sealed})
        return Result(changed=bool(taken["changed"]), values={"held": taken["held"], "demanded": demanded})

    def _value(self, name: str) -> bytes:
        """Return the value of a variable of the node, empty if it is not set."""
        if name not in self.task_vars:
            return b""
        text = str(self._templar.template(self.task_vars[name]))
        return parse_auth(text, name=name) if text else b""

    def _run(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return run_module_there(self._execute, _MODULE, arguments)

    def _execute(self, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self._execute_module(
            module_name=module, module_args=dict(arguments), task_vars=self.task_vars
        )
        return result
