# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``master_secret``: it runs on the admin's machine, which the secrets never leave."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils._deps.crypto import serialization, x509
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import require_passphrase
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.places import (
    holds_split,
    read_shares,
    require_outside,
    write_shares,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.secrets import Origin
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.shares import (
    ShareOrder,
    combine_shares,
    split_master,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site, parse_salt
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, site_spec
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import (
    SecretBytes,
    import_master_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.secrets import SecretsPlan
    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import ClusterFile

_MAX_SECRET_BYTES = 4096
_MAX_PASSPHRASE_BYTES = 512


class ActionModule(AttestedAction):
    """Make or import the secrets of a site, all or none, and split the master secret."""

    SPEC = site_spec().merged(
        ArgumentSpec(
            options={
                "cluster_name": {"type": "str", "required": True},
                "import_from": {"type": "path"},
                "measurement_salt": {"type": "str"},
                "passphrase_file": {"type": "path", "no_log": False},
                "secure_boot_key": {"type": "bool", "default": False, "no_log": False},
                "shares_from": {"type": "list", "elements": "path"},
                "shares_to": {"type": "path"},
                "split": {"type": "str"},
            },
            mutually_exclusive=(("import_from", "shares_from"), ("shares_from", "shares_to")),
            required_together=(("shares_to", "split"),),
        )
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Plan, and without check mode apply."""
        site = Site.at(params["site"])
        order = _order_of(params)
        plan = secrets.plan(site, _origin_of(params))
        boot_key = secrets.plan_boot_key(site) if params["secure_boot_key"] else ()
        made = [str(path.relative_to(site.root)) for path in (*plan.missing, *boot_key)]
        if check_mode and plan.missing:
            return _result(made, split=order is not None)
        public = _apply(site, plan, str(params["cluster_name"]))
        if boot_key and not check_mode:
            secrets.make_boot_key(site, name=str(params["cluster_name"]), vault=AnsibleVault(), clock=SystemClock())
        split = order is not None and _split(site, params["shares_to"], order, check_mode=check_mode)
        return _result(made, split=split, **_shown(public))


def _result(made: list[str], *, split: bool, **values: str) -> Result:
    after = [*made, "shares of the master secret"] if split else made
    diff = Diff(before="", after="".join(f"{name}\n" for name in after), header="files of the site")
    return Result(changed=bool(after), values={"created": made, "split": split, **values}, diff=diff)


def _apply(site: Site, plan: SecretsPlan, name: str) -> ClusterFile:
    return secrets.apply(site, plan, name=name, vault=AnsibleVault(), clock=SystemClock(), random=SystemRandom())


def _split(site: Site, folder: str, order: ShareOrder, *, check_mode: bool) -> bool:
    """Write shares unless the folder has them already; return whether anything is, or would be, written."""
    bundle = secrets.load(site, AnsibleVault())
    master = bundle.ring.require_first()
    if holds_split(folder, master, order):
        return False
    if not check_mode:
        texts = split_master(master, salt=bundle.measurement_salt, order=order, random=SystemRandom())
        write_shares(folder, texts)
    return True


def _order_of(params: Mapping[str, Any]) -> ShareOrder | None:
    if not params["shares_to"]:
        return None
    require_outside(params["shares_to"])
    return ShareOrder.parse(params["split"], _passphrase_of(params))


def _origin_of(params: Mapping[str, Any]) -> Origin | None:
    salt = parse_salt(params["measurement_salt"]) if params["measurement_salt"] else b""
    if params["import_from"]:
        master = import_master_secret(read_bytes(params["import_from"], limit=_MAX_SECRET_BYTES))
        return Origin(master=master, measurement_salt=salt)
    if params["shares_from"]:
        rebuilt = combine_shares(read_shares(params["shares_from"]), _passphrase_of(params))
        return Origin(master=rebuilt.master, measurement_salt=salt or bytes.fromhex(rebuilt.facts.measurement_salt))
    return None


def _passphrase_of(params: Mapping[str, Any]) -> SecretBytes:
    if not params["passphrase_file"]:
        return SecretBytes(b"")
    return require_passphrase(read_bytes(params["passphrase_file"], limit=_MAX_PASSPHRASE_BYTES))


def _shown(public: ClusterFile) -> dict[str, str]:
    pin = hashlib.sha256(x509.load_pem_x509_certificate(public.join_ca).public_bytes(serialization.Encoding.DER))
    return {"cluster_id": public.cluster_id.hex(), "join_ca_sha256": pin.hexdigest()}
