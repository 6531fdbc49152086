# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``node_identity_info``: the identities of the inventory, read on the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    enrolled_identities,
    read_nodes,
    render_objects,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import NodeIdentity


class ActionModule(AttestedAction):
    """Read the inventory of this run."""

    SPEC = ArgumentSpec()

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG002  # a reader
        """Return the identities, the machines without one, and the manifests that are applied."""
        nodes = read_nodes(self.task_vars["hostvars"], self.task_vars["groups"])
        identities = enrolled_identities(nodes)
        values = {
            "identities": [_shown(one) for one in identities],
            "not_enrolled": [node.name for node in nodes if node.ek_sha256 is None],
            "manifests": render_objects((), identities),
        }
        return Result(values=values)


def _shown(identity: NodeIdentity) -> dict[str, str]:
    return {
        "name": identity.name,
        "node": identity.node_name,
        "role": identity.role.value,
        "admission": identity.admission.value,
        "ek_sha256": identity.ek_sha256,
        "ek_alias": identity.ek_alias,
        "known_by": identity.known_by,
    }
