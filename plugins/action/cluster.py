# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``cluster``: judge the first control plane, then send it the cluster's keys, sealed to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    node_config_spec,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
    tpm_timeout_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping

_NODE_MODULE = "attested.kubernetes.cluster_keys"


class ActionModule(SiteAction):
    """Verify, seal, send: no secret leaves the admin's machine before the node was judged."""

    SPEC = site_spec().merged(site_policy_spec(), site_verifier_spec(), node_config_spec(), tpm_timeout_spec())

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Judge the node of this task; without check mode send it the keys."""
        self.require_founder()
        site = Site.at(params["site"])
        bundle = secrets.load(site, AnsibleVault())
        verified, handle = self.control_plane(params, purpose=Purpose.INIT)
        values = {
            "cluster_id": bundle.cluster_id.hex(),
            "profile": verified.verdict.profile,
            "posture": verified.verdict.posture.value,
            "ek_sha256": verified.machine.ek_sha256,
        }
        if check_mode:
            return Result(changed=verified.machine.lock.state is LockState.UNLOCKED, values=values)
        taken = self.hand_over(bundle.to_bytes(), _NODE_MODULE, params, to=verified, handle=handle)
        return Result(changed=bool(taken["changed"]), values={**values, "steps": taken["steps"]})
