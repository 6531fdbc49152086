# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``admin_kubeconfig``: the admin's request, and the kubeconfig once it was signed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import admin_access
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.admin_access import Access
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.layout import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, site_spec
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(AttestedAction):
    """Without a certificate: return the request. With one: write .secrets/admin.kubeconfig."""

    SPEC = site_spec().merged(
        ArgumentSpec(
            options={
                "cluster_name": {"type": "str"},
                "server": {"type": "str"},
                "tls_server_name": {"type": "str"},
                "cluster_ca": {"type": "str"},
                "certificate": {"type": "str"},
            },
            required_by={"certificate": ("cluster_name", "server", "tls_server_name", "cluster_ca")},
        )
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Request or write."""
        site, vault = Site.at(params["site"]), AnsibleVault()
        if not params["certificate"]:
            return _request(site, vault, authorities=params["cluster_ca"] or "", check_mode=check_mode)
        if check_mode:
            return Result(changed=True)
        access = Access(
            cluster_name=params["cluster_name"],
            server=params["server"],
            tls_server_name=params["tls_server_name"],
            cluster_ca=params["cluster_ca"].encode("ascii"),
            certificate=params["certificate"].encode("ascii"),
        )
        admin_access.write_kubeconfig(site, vault, access)
        return Result(changed=True, values={"path": str(site.admin_kubeconfig)})


def _request(site: Site, vault: AnsibleVault, *, authorities: str, check_mode: bool) -> Result:
    if not admin_access.needs_certificate(
        site, vault, now=SystemClock().now(), authorities=authorities.encode("ascii")
    ):
        return Result()
    made = not site.admin_key.exists()
    if check_mode:
        return Result(changed=made)
    return Result(changed=made, values={"request": admin_access.request_certificate(site, vault).decode("ascii")})
