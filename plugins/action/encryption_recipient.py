# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``encryption_recipient``: judge a control plane, and say sealed to whom a key goes."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
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

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(SiteAction):
    """The secret that opens the box is in memory here, between the judgement and the sealing of the order."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        site_verifier_spec(),
        node_config_spec(),
        tpm_timeout_spec(),
        ArgumentSpec(
            options={
                "names": {"type": "list", "elements": "str", "required": True},
                "offer": {"type": "str", "required": True},
            }
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG002  # it changes nothing
        """Judge the node of this task and seal the order."""
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
