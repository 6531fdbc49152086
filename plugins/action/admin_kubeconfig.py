# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``admin_kubeconfig``: an admin's request, the signed kubeconfig, and copies of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import admin_access
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.admin_access import (
    ADMIN_USER,
    Access,
    CertificatePlan,
    GivenAccess,
    Wanted,
    accept_authorities,
    accept_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, site_spec
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.admin import groups_of, require_subject
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_port import run_module_there
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.admin_access import Copy

_NODE_MODULE = "attested.kubernetes.admin_certificate"
_REACHED = ("cluster_name", "server", "tls_server_name")
_OF_SIGN = ("admin", "groups", "hours", "renew", "file", "merge")


class ActionModule(SiteAction):
    """Without a certificate: return the request. With one, or with sign: write the kubeconfig into .secrets/."""

    SPEC = site_spec().merged(
        ArgumentSpec(
            options={
                "cluster_name": {"type": "str"},
                "server": {"type": "str"},
                "tls_server_name": {"type": "str"},
                "cluster_ca": {"type": "str"},
                "certificate": {"type": "str"},
                "sign": {"type": "bool"},
                "admin": {"type": "str"},
                "groups": {"type": "list", "elements": "str"},
                "hours": {"type": "int"},
                "renew": {"type": "bool"},
                "file": {"type": "path"},
                "merge": {"type": "bool"},
            },
            mutually_exclusive=(("sign", "certificate"), ("sign", "cluster_ca")),
            required_if=(("sign", True, _REACHED),),
            required_by={"certificate": (*_REACHED, "cluster_ca"), **dict.fromkeys(_OF_SIGN, ("sign",))},
        )
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Return the request, or write the kubeconfig, with ``sign`` after a control plane signed the request."""
        if params["sign"]:
            wanted = _wanted(params)
            return self._hold(params, wanted, Site.at(params["site"]), AnsibleVault(), check_mode=check_mode)
        site, vault = Site.at(params["site"]), AnsibleVault()
        if not params["certificate"]:
            return _request(site, vault, authorities=params["cluster_ca"] or "", check_mode=check_mode)
        if check_mode:
            return Result(changed=True)
        given = GivenAccess(
            cluster_ca=params["cluster_ca"].encode("ascii"), certificate=params["certificate"].encode("ascii")
        )
        admin_access.write_kubeconfig(site, vault, _access(params, given))
        return Result(changed=True, values={"path": str(site.admin_kubeconfig)})

    def _hold(
        self, params: Mapping[str, Any], wanted: Wanted, site: Site, vault: AnsibleVault, *, check_mode: bool
    ) -> Result:
        """Let the control plane of this task sign if a certificate is due; write the kubeconfig and its copies."""
        path = site.kubeconfig_of(wanted.user)
        authorities = accept_authorities(self._run_module({})["cluster_ca"].encode("ascii"))
        plan = admin_access.plan_certificate(site, vault, wanted, now=SystemClock().now(), authorities=authorities)
        access = _access(params, GivenAccess(cluster_ca=authorities, certificate=plan.present))
        copies = _copies(params, site, admin_access.held_body(site, vault, access, user=wanted.user))
        changes = []
        if plan.why:
            groups = ", ".join(plan.groups) or "no group"
            changes.append(f"a certificate of {wanted.user} in {groups} for {plan.hours} hours, since {plan.why}")
            if not check_mode:
                access = _access(params, self._signed(site, vault, wanted.user, plan))
                copies = _copies(params, site, admin_access.held_body(site, vault, access, user=wanted.user))
        if plan.why or not admin_access.holds(site, vault, access, user=wanted.user):
            changes.append(f"{path}, encrypted")
            if not check_mode:
                admin_access.write_kubeconfig(site, vault, access, user=wanted.user)
        for copy in copies:
            if (plan.why and check_mode) or not copy.is_current:
                changes.append(f"{copy.path}, in clear")
                if not check_mode:
                    copy.write()
        return Result(changed=bool(changes), values={"path": str(path), "said": changes})

    def _signed(self, site: Site, vault: AnsibleVault, user: str, plan: CertificatePlan) -> GivenAccess:
        request = admin_access.request_certificate(site, vault, user=user)
        known = {"name": user, "groups": list(plan.groups), "hours": plan.hours}
        answer = self._run_module({"request": request.decode("ascii"), **known})
        given = GivenAccess(
            cluster_ca=answer["cluster_ca"].encode("ascii"), certificate=answer["certificate"].encode("ascii")
        )
        return accept_certificate(given, request=request, user=user, groups=plan.groups, now=SystemClock().now())

    def _run_module(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return run_module_there(self.execute, _NODE_MODULE, arguments)


def _wanted(params: Mapping[str, Any]) -> Wanted:
    """Return the certificate that the options request; raises OPTION_INVALID."""
    user, named, hours = params["admin"] or ADMIN_USER, params["groups"], params["hours"]
    if user == ADMIN_USER:
        if named is not None:
            raise SiteError(
                f"expected groups only for a further admin, got some for {ADMIN_USER}: name one with admin=NAME",
                reason=Reason.OPTION_INVALID,
            )
        groups: tuple[str, ...] | None = groups_of(user, None)
    else:
        groups = None if named is None else groups_of(user, [one for one in named if one])
    require_subject(user, groups or (), admin_access.DEFAULT_HOURS if hours is None else hours)
    return Wanted(user=user, groups=groups, hours=hours, renew=bool(params["renew"]))


def _access(params: Mapping[str, Any], given: GivenAccess) -> Access:
    return Access(
        cluster_name=params["cluster_name"],
        server=params["server"],
        tls_server_name=params["tls_server_name"],
        cluster_ca=given.cluster_ca,
        certificate=given.certificate,
    )


def _copies(params: Mapping[str, Any], site: Site, body: dict[str, Any]) -> list[Copy]:
    """Return the copies of the kubeconfig outside of the site; raises OPTION_INVALID."""
    copies = []
    if params["file"]:
        copies.append(admin_access.own_file(Path(params["file"]), body, site=site))
    if params["merge"]:
        first = os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0] or "~/.kube/config"
        copies.append(admin_access.merged(Path(first).expanduser(), body))
    return copies


def _request(site: Site, vault: AnsibleVault, *, authorities: str, check_mode: bool) -> Result:
    if not admin_access.needs_certificate(
        site, vault, now=SystemClock().now(), authorities=authorities.encode("ascii")
    ):
        return Result()
    made = not site.admin_key.exists()
    if check_mode:
        return Result(changed=made)
    return Result(changed=made, values={"request": admin_access.request_certificate(site, vault).decode("ascii")})
