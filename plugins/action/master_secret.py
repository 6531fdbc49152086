# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``master_secret``: it works on the admin's machine, because the secrets never leave it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ..module_utils._deps.crypto import serialization, x509
from ..module_utils.adapter import ArgumentSpec, Diff, Result, site_spec
from ..module_utils.site import Site, secrets
from ..module_utils.system import SystemClock, SystemRandom
from ..plugin_utils.action import AttestedAction
from ..plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..module_utils.site import ClusterFile, SecretsPlan


class ActionModule(AttestedAction):
    """Make the secrets of a site, all or none."""

    SPEC = site_spec().merged(
        ArgumentSpec(
            options={
                "cluster_name": {"type": "str", "required": True},
            }
        )
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan, and without check mode apply."""
        site = Site.at(params["site"])
        plan = secrets.plan(site)
        made = tuple(str(path.relative_to(site.root)) for path in plan.missing)
        diff = Diff(before="", after="".join(f"{name}\n" for name in made), header="files of the site")
        if check_mode and plan.missing:
            return Result(changed=True, values={"created": list(made)}, diff=diff)
        public = _apply(site, plan, str(params["cluster_name"]))
        return Result(changed=bool(made), values={"created": list(made), **_shown(public)}, diff=diff)


def _apply(site: Site, plan: SecretsPlan, name: str) -> ClusterFile:
    return secrets.apply(site, plan, name=name, vault=AnsibleVault(), clock=SystemClock(), random=SystemRandom())


def _shown(public: ClusterFile) -> dict[str, str]:
    pin = hashlib.sha256(x509.load_pem_x509_certificate(public.join_ca).public_bytes(serialization.Encoding.DER))
    return {"cluster_id": public.cluster_id.hex(), "join_ca_sha256": pin.hexdigest()}
