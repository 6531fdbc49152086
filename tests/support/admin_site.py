# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site with the action `admin_kubeconfig`, whose control plane signs with the production code."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml
from ansible.constants import DEFAULT_VAULT_ID_MATCH
from ansible.parsing.vault import VaultLib, VaultSecret, VaultSecretsContext
from ansible_collections.attested.kubernetes.plugins.action.admin_kubeconfig import ActionModule
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import SITE_ADMIN, Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import failure_of
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.node import ca_rotation
from ansible_collections.attested.kubernetes.plugins.modules.admin_certificate import SPEC
from ansible_collections.attested.kubernetes.tests.support.canary import spellings_of_pem
from cryptography import x509

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest
    from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths

SECRETS = [(DEFAULT_VAULT_ID_MATCH, VaultSecret(b"correct horse"))]


class Asking(ActionModule):
    """The action with its module in this process; records the module's options."""

    asked: list[Mapping[str, Any]]

    def execute(self, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the module of the control plane."""
        assert module == "attested.kubernetes.admin_certificate"
        self.asked.append(arguments)
        known = {name: option.get("default") for name, option in SPEC.options.items()}
        try:
            return ca_rotation.run_admin_certificate({**known, **arguments}, check_mode=False).values
        except AttestedError as error:
            return {"failed": True} | failure_of(error)


@dataclass
class AdminSite:
    """A site in ``root``; `act` runs the action as a task of a control plane with the cluster CA in ``paths``."""

    root: Path
    paths: KubernetesPaths
    patch: pytest.MonkeyPatch
    vault: VaultLib = field(default_factory=lambda: VaultLib(SECRETS))
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Create the site, the vault password and the control plane."""
        (self.root / ".secrets").mkdir(parents=True)
        (self.root / "hosts.yml").write_text("---\n", encoding="utf-8")
        self.site = Site.at(self.root)
        self.patch.setattr(VaultSecretsContext, "_current", VaultSecretsContext(SECRETS))
        self.patch.setattr(ca_rotation, "KubernetesPaths", lambda: self.paths)

    def act(self, *, check_mode: bool = False, **changes: Any) -> dict[str, Any]:
        """Run the action and return its result."""
        options = {
            "site": str(self.root),
            "sign": True,
            "cluster_name": "prod",
            "server": "api.prod.example:6443",
            "tls_server_name": "api.prod.example",
            **changes,
        }
        known = {"async_val": 0, "check_mode": check_mode, "diff": True, "environment": None}
        task = SimpleNamespace(args=options, action="attested.kubernetes.admin_kubeconfig", **known)
        connection = SimpleNamespace(transport="ssh", _shell=SimpleNamespace(tmpdir=None))
        become = SimpleNamespace(become=False)
        action = Asking(task, connection, become, loader=None, templar=None, shared_loader_obj=None)
        action.asked = self.asked = []
        answer: dict[str, Any] = action.run(task_vars={})
        return answer

    def kubeconfig(self, user: str = SITE_ADMIN) -> dict[str, Any]:
        """Return an admin's kubeconfig in the site."""
        body: dict[str, Any] = yaml.safe_load(self.vault.decrypt(self.site.kubeconfig_of(user).read_bytes()))
        return body

    def key(self, user: str = SITE_ADMIN) -> bytes:
        """Return the private key (PEM) of an admin."""
        return bytes(self.vault.decrypt(self.site.key_of(user).read_bytes()))

    def certificate(self, user: str = SITE_ADMIN) -> x509.Certificate:
        """Return the certificate of an admin."""
        credential = self.kubeconfig(user)["users"][0]["user"]
        return x509.load_pem_x509_certificate(base64.b64decode(credential["client-certificate-data"]))

    def canaries(self, user: str = SITE_ADMIN) -> list[bytes]:
        """Return all encodings of an admin's private key."""
        return spellings_of_pem(self.key(user))

    def files(self) -> dict[str, bytes]:
        """Return the files in .secrets/ by name."""
        return {path.name: path.read_bytes() for path in sorted(self.site.secrets.iterdir())}
