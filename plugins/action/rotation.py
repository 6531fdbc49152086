# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``rotation``: plan every rotation, and run the site's own phases, on the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.secrets import apply_in_site, is_own
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, rotation_spec
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.values import facts_of, plan_values
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_port import run_module_there
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping

_INFO = "attested.kubernetes.rotation_info"


class OwnVersions:
    """The versions of the master secret that a site has."""

    def __init__(self, path: str) -> None:
        """Open the site; raises SITE_VAULT, SITE_SECRETS_INCOMPLETE."""
        self.site, self.vault = Site.at(path), AnsibleVault()
        self.names = secrets.load(self.site, self.vault).ring.names


class ActionModule(AttestedAction):
    """Plan from the state of every node and of the cluster; with ``apply`` run the site's own phase."""

    SPEC = rotation_spec().merged(
        ArgumentSpec(
            options={
                "old": {"type": "str", "default": ""},
                "found": {"type": "list", "elements": "dict", "required": True},
                "site": {"type": "path"},
                "apply": {"type": "bool", "default": False},
            },
            required_if=(("kind", "master_secret", ("site",)),),
        )
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan, and run the site's own phase."""
        kind = params["kind"]
        site = OwnVersions(params["site"]) if kind == "master_secret" else None
        answer = run_module_there(self._execute, _INFO, {"kind": kind, "scope": "cluster"})
        facts = facts_of(answer, versions=site.names if site else ())
        plan = plan_values(kind, params["found"], facts, old=params["old"])
        changed = bool(site and params["apply"] and is_own(plan))
        if site and changed and not check_mode:
            apply_in_site(site.site, site.vault, plan, random=SystemRandom())
        before = "".join(f"{phase}\n" for phase in plan["phases"])
        return Result(changed=changed, values=plan, diff=Diff(before=before, after="", header="phases that are left"))

    def _execute(self, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self._execute_module(
            module_name=module, module_args=dict(arguments), task_vars=self.task_vars
        )
        return result
