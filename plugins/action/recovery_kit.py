# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``recovery_kit``: it runs on the admin's machine, which the secrets never leave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import recovery_kit, secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import Lock
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, site_spec
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.kit_keys import (
    kit_keys_spec,
    opened_kit,
    passphrase_of,
)
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_KEY_BYTES = 65536


class ActionModule(AttestedAction):
    """Write the recovery kit of a site if its content changed, or restore a site from one."""

    SPEC = site_spec().merged(
        kit_keys_spec(),
        ArgumentSpec(
            options={
                "path": {"type": "path", "required": True},
                "state": {"type": "str", "choices": ["present", "restored"], "default": "present"},
                "policy_directory": {"type": "path"},
                "recipients": {"type": "list", "elements": "str"},
                "token_key": {"type": "path", "no_log": False},
            },
            mutually_exclusive=(("recipients", "passphrase_file", "token_key"),),
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan, and without check mode apply."""
        site = Site.at(params["site"])
        if params["state"] == "restored":
            return _restore(site, params, check_mode=check_mode)
        return _write(site, params, check_mode=check_mode)


def _write(site: Site, params: Mapping[str, Any], *, check_mode: bool) -> Result:
    path = Path(params["path"]).resolve()
    order = recovery_kit.KitOrder(path=path, lock=_lock_of(params), policy_directory=params["policy_directory"])
    if check_mode and secrets.plan(site).missing:
        return _written(path, changed=True)
    plan = recovery_kit.plan_kit(site, AnsibleVault(), order, now=SystemClock().now())
    if not check_mode:
        recovery_kit.apply_kit(site, plan, random=SystemRandom())
    values = {"cluster_id": plan.kit.cluster_id.hex(), "policy_generation": plan.kit.policy_generation}
    return _written(path, changed=not plan.current, **values)


def _written(path: Path, *, changed: bool, **values: Any) -> Result:
    diff = Diff(before="", after=f"{path}\n" if changed else "", header="recovery kit")
    return Result(changed=changed, values={"path": str(path), "restored": [], "kept": [], **values}, diff=diff)


def _restore(site: Site, params: Mapping[str, Any], *, check_mode: bool) -> Result:
    opened = opened_kit(params["path"], params)
    vault = AnsibleVault()
    plan = recovery_kit.plan_restoration(site, opened, vault, policy_directory=params["policy_directory"])
    if not check_mode:
        recovery_kit.restore(site, plan, vault, policy_directory=params["policy_directory"])
    values = {
        "path": str(params["path"]),
        "restored": list(plan.written),
        "kept": list(plan.kept),
        "cluster_id": opened.cluster_id.hex(),
        "policy_generation": opened.policy_generation,
    }
    kept = tuple(f"{name} of the site differs from that of the kit and is kept" for name in plan.kept)
    diff = Diff(before="", after="".join(f"{name}\n" for name in plan.written), header="files of the site")
    return Result(changed=bool(plan.written), values=values, diff=diff, warnings=kept)


def _lock_of(params: Mapping[str, Any]) -> Lock:
    if not (params["recipients"] or params["passphrase_file"] or params["token_key"]):
        raise SiteError(
            "expected one of recipients, passphrase_file and token_key to encrypt the kit, got none",
            reason=Reason.KIT_KEY_WRONG,
        )
    return Lock(
        passphrase=passphrase_of(params),
        recipients=tuple(params["recipients"] or ()),
        token_key=read_bytes(params["token_key"], limit=_MAX_KEY_BYTES) if params["token_key"] else b"",
    )
