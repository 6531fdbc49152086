# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``master_secret_share``: judge a control plane, then send it versions, sealed to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.layout import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
    tpm_timeout_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping

_NODE_MODULE = "attested.kubernetes.master_secret_versions"


class ActionModule(SiteAction):
    """Verify, seal, send: nothing secret leaves this machine before the node was judged in the state that it is in."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        site_verifier_spec(),
        node_config_spec(),
        tpm_timeout_spec(),
        ArgumentSpec(options={"order": {"type": "list", "elements": "str", "required": True}}),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Judge the control plane of this task; without check mode give it the versions."""
        bundle = secrets.load(Site.at(params["site"]), AnsibleVault()).ordered(params["order"])
        verified, handle = self.control_plane(params, purpose=Purpose.SHARE)
        values = {"names": list(bundle.ring.names), "profile": verified.verdict.profile}
        if check_mode:
            return Result(changed=True, values=values)
        taken = self.hand_over(bundle.to_bytes(), _NODE_MODULE, params, to=verified, handle=handle)
        return Result(changed=bool(taken["changed"]), values=values)
