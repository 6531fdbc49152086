# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``cluster``: judge the first control plane, then send it the cluster's keys, sealed to it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ..module_utils.adapter import (
    Result,
    node_config_spec,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
    tpm_timeout_spec,
)
from ..module_utils.attestation import LockState, Purpose
from ..module_utils.errors import Refusal
from ..module_utils.policy import Role
from ..module_utils.reasons import Reason
from ..module_utils.site import Site, secrets
from ..module_utils.site.policy_files import site_policy
from ..plugin_utils.node_port import run_module_there
from ..plugin_utils.site_action import SiteAction
from ..plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..module_utils.attestation import VerifiedNode
    from ..module_utils.policy import SitePolicy

_NODE_MODULE = "attested.kubernetes.cluster_keys"


class ActionModule(SiteAction):
    """Verify, seal, send: nothing secret leaves this machine before the node was judged (design 9.2)."""

    SPEC = site_spec().merged(site_policy_spec(), site_verifier_spec(), node_config_spec(), tpm_timeout_spec())

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Judge the node of this task; without check mode give it the keys."""
        self.require_founder()
        site = Site.at(params["site"])
        profiles, nodes = self.profiles(params), self.nodes()
        policy = site_policy(profiles, nodes)
        bundle = secrets.load(site, AnsibleVault())
        verified, handle = self._judge(params, policy)
        values = {
            "cluster_id": bundle.cluster_id.hex(),
            "profile": verified.verdict.profile,
            "posture": verified.verdict.posture.value,
            "ek_sha256": verified.machine.ek_sha256,
        }
        if check_mode:
            return Result(changed=verified.machine.lock.state is LockState.UNLOCKED, values=values)
        sealed = base64.b64encode(verified.machine.seal(bundle.to_bytes())).decode("ascii")
        taken = run_module_there(
            self.execute,
            _NODE_MODULE,
            {
                "handle": handle,
                "sealed": sealed,
                "node_config": params["node_config"],
                "tpm_timeout_seconds": params["tpm_timeout_seconds"],
            },
        )
        return Result(changed=bool(taken["changed"]), values={**values, "steps": taken["steps"]})

    def _judge(self, params: Mapping[str, Any], policy: SitePolicy) -> tuple[VerifiedNode, str]:
        verified, handle = self.verifier(params).verify(
            self.port(params), purpose=Purpose.INIT, node=self.node_name, policy=policy
        )
        if verified.identity.role is not Role.CONTROL_PLANE:
            raise Refusal(
                f"expected a control plane, the identity of {self.node_name} says {verified.identity.role.value}",
                reason=Reason.ROLE_NOT_REGISTERED,
            )
        return verified, handle
