# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``rotation_recipient``: verify a control plane, then send it keys or a sealed order for them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    rotation_spec,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
    tpm_timeout_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.answers import decode
from ansible_collections.attested.kubernetes.plugins.module_utils.node.key_share import ShareOrder
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping


_NODE_MODULE = "attested.kubernetes.rotation_phase"


class ActionModule(SiteAction):
    """Verify, seal, send: no secret leaves the admin's machine before the node was verified in its current state.

    The secret that opens the box is only in memory, between the verification and the sealing of the order.
    """

    SPEC = rotation_spec().merged(
        site_spec(),
        site_policy_spec(),
        site_verifier_spec(),
        node_config_spec(),
        tpm_timeout_spec(),
        ArgumentSpec(
            options={
                "names": {"type": "list", "elements": "str", "required": True},
                "offer": {"type": "str"},
            },
            required_if=(("kind", "authorities", ("offer",)), ("kind", "encryption_key", ("offer",))),
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Verify the node of this task; seal the order, or send the versions that the site has."""
        return self._send(params, check_mode) if params["kind"] == "master_secret" else self._order(params)

    def _send(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        bundle = secrets.load(Site.at(params["site"]), AnsibleVault()).ordered(params["names"])
        verified, handle = self.control_plane(params, purpose=Purpose.SHARE)
        values = {"names": list(bundle.ring.names), "profile": verified.verdict.profile}
        if check_mode:
            return Result(changed=True, values=values)
        data = bundle.to_bytes()
        taken = self.hand_over(data, _NODE_MODULE, params, to=verified, handle=handle, kind=params["kind"])
        return Result(changed=bool(taken["changed"]), values=values)

    def _order(self, params: Mapping[str, Any]) -> Result:
        offer = decode(params["offer"], "offer")
        verified, handle = self.control_plane(params, purpose=Purpose.SHARE)
        machine = verified.machine
        order = ShareOrder(
            names=tuple(params["names"]),
            secret=machine.secret,
            binding=machine.binding,
            recipient=machine.hpke_public,
        )
        return Result(
            values={
                "handle": handle,
                "order": base64.b64encode(order.seal(offer=offer)).decode("ascii"),
                "profile": verified.verdict.profile,
            }
        )
