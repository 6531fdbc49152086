# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``master_secret_rotation``: the site's versions are read and changed on the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.layout import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.master_rotation import (
    OWN_PHASES,
    apply_in_site,
    plan_in_site,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, site_spec
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(AttestedAction):
    """Say what is left of a rotation, and with ``apply`` do what of it the site does by itself."""

    SPEC = site_spec().merged(
        ArgumentSpec(
            options={
                "old": {"type": "str", "default": ""},
                "found": {"type": "list", "elements": "dict", "required": True},
                "nodes": {"type": "list", "elements": "str", "required": True},
                "control_planes": {"type": "list", "elements": "str", "required": True},
                "apply": {"type": "bool", "default": False},
            }
        )
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan, and do the site's own phase."""
        site, vault = Site.at(params["site"]), AnsibleVault()
        found = {"said": params["found"], **{name: params[name] for name in ("nodes", "control_planes")}}
        names, plan = plan_in_site(site, vault, found=found, old=params["old"])
        own = params["apply"] and plan.phases[:1] in [(one,) for one in OWN_PHASES]
        changed = own if check_mode or not own else apply_in_site(site, vault, plan, random=SystemRandom())
        phases = [phase.value for phase in plan.phases]
        return Result(
            changed=changed,
            values={
                "phases": phases,
                "successor": plan.successor,
                "order": list(plan.order),
                "disks": list(plan.disks),
                "versions": list(names),
            },
            diff=Diff(before="".join(f"{phase}\n" for phase in phases), after="", header="phases that are left"),
        )
