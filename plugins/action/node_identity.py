# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``node_identity``: write which TPM is in a machine into the site, on the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.assigned_disks import disk_in
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import render_identity_file
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.layout import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, site_spec
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, identity_name
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_files import write_site_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result


class ActionModule(AttestedAction):
    """Write host_vars/<node>/identity.yml."""

    SPEC = site_spec().merged(
        ArgumentSpec(
            options={
                "node": {"type": "str", "required": True},
                "ek_sha256": {"type": "str", "required": True},
                "known_by": {"type": "str", "required": True},
                "admission": {"type": "str", "choices": ["Approved", "Refused", "Revoked"], "default": "Approved"},
                "replaced": {"type": "list", "elements": "str", "default": []},
                "ek_aliases": {"type": "dict", "default": {}},
            }
        )
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Render, compare, write; the id of the disk, which is the cluster's word, stays."""
        path = Site.at(params["site"]).identity_file(params["node"])
        known = disk_in(read_bytes(path), place=str(path)) if path.exists() else ""
        wanted = render_identity_file(
            ek_sha256=params["ek_sha256"],
            known_by=params["known_by"],
            admission=Admission(params["admission"]),
            replaced=params["replaced"],
            aliases={_hex(ek): _hex(alias) for ek, alias in params["ek_aliases"].items()},
            disk=known,
        )
        return write_site_file(path, wanted, check_mode=check_mode, identity=identity_name(params["ek_sha256"]))


def _hex(ek: Any) -> str:
    return str(ek).removeprefix("sha256:")
