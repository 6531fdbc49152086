# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site that is ready for init: secrets in a vault, one profile, one enrolled control plane cp-1 on this host."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ansible.constants import DEFAULT_VAULT_ID_MATCH
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible_collections.attested.kubernetes.plugins.action.init import ActionModule
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import render_identity_file
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_document, render_profile
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.canary import spellings, spellings_of_pem
from ansible_collections.attested.kubernetes.tests.support.exchange import learned

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle

PASSWORD = "correct horse"
SECRETS = [(DEFAULT_VAULT_ID_MATCH, VaultSecret(PASSWORD.encode()))]
NODE = "cp-1"
_HOSTS = """---
nodes:
  children:
    control_planes:
      hosts:
        cp-1:
          ansible_host: 127.0.0.1
    workers: {}
"""


class Lines:
    """The displayed lines; ``shown`` waits for a text."""

    def __init__(self) -> None:
        """Set empty lines."""
        self.all: list[str] = []
        self._more = threading.Condition()

    def display(self, line: str, **_how: Any) -> None:
        """Add a line."""
        with self._more:
            self.all.append(line)
            self._more.notify_all()

    def shown(self, text: str) -> None:
        """Wait until a line contains ``text``."""
        with self._more:
            assert self._more.wait_for(lambda: any(text in line for line in self.all), timeout=900), self.all


@dataclass
class InitSite:
    """The files of a site in ``root``, and its action as a task of cp-1."""

    root: Path
    boot: str = "deb13-base"
    vault: VaultLib = field(default_factory=lambda: VaultLib(SECRETS))

    def __post_init__(self) -> None:
        """Create the site and its secrets without enrolled machines."""
        (self.root / ".secrets").mkdir(parents=True)
        (self.root / "policy").mkdir()
        (self.root / "hosts.yml").write_text(_HOSTS, encoding="utf-8")
        (self.root / "password").write_text(PASSWORD, encoding="utf-8")
        self.write_profile(self.boot)
        self.site = Site.at(self.root)
        clock, random = SystemClock(), SystemRandom()
        secrets.apply(self.site, secrets.plan(self.site), name="prod", vault=self.vault, clock=clock, random=random)
        self.bundle: KeyBundle = secrets.load(self.site, self.vault)
        self.ek = ""

    @property
    def keys(self) -> tuple[JoinCa, KeyBundle]:
        """The join CA and the keys, in the form of `init_bed.InitBed`."""
        ca = JoinCa(certificate=self.bundle.join_ca_certificate, private_key=self.bundle.join_ca_key.reveal())
        return ca, self.bundle

    def write_profile(self, boot: str) -> None:
        """Accept this recorded boot with the profile ``machines``."""
        manifest = render_profile(learned(boots.load(boot))) | {"metadata": {"name": "machines"}}
        (self.root / "policy" / "machines.yml").write_text(render_document(manifest), encoding="utf-8")

    def enroll(self, ek: Any) -> None:
        """Write the EK of cp-1."""
        self.ek = ek.public.spki_sha256()
        path = self.site.identity_file(NODE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(render_identity_file(ek_sha256=self.ek, known_by="fingerprint"))

    def options(self, port: int, **changes: Any) -> dict[str, Any]:
        """Return the options of a valid task."""
        return {
            "site": str(self.root),
            "profiles": ["machines"],
            "cluster_name": "prod",
            "kubernetes_version": "1.35.4",
            "server": "api.prod.example:6443",
            "tls_server_name": "api.prod.example",
            "port": port,
            "wait_seconds": 60,
            **changes,
        }

    def act(self, port: int, *, lines: Lines | None = None, check_mode: bool = False, **changes: Any) -> dict[str, Any]:
        """Run the action and return its result; displayed lines go to ``lines``."""
        task = SimpleNamespace(
            args=self.options(port, **changes),
            async_val=0,
            check_mode=check_mode,
            diff=False,
            environment=None,
            action="attested.kubernetes.init",
        )
        connection = SimpleNamespace(transport="ssh", _shell=SimpleNamespace(tmpdir=None))
        action = ActionModule(
            task, connection, SimpleNamespace(become=False), loader=None, templar=None, shared_loader_obj=None
        )
        action._display = lines or Lines()  # Ansible sets it for each action
        known = {"ansible_host": "127.0.0.1", "attested_ek": f"sha256:{self.ek}", "attested_ek_known_by": "fingerprint"}
        return action.run(
            task_vars={
                "inventory_hostname": NODE,
                "hostvars": {NODE: known},
                "groups": {"nodes": [NODE], "control_planes": [NODE], "workers": []},
            }
        )

    def canaries(self) -> list[bytes]:
        """Return all encodings of all secrets of the site, including the admin's key."""
        master = self.bundle.master
        raw = (master.key.reveal(), master.salt.reveal(), self.bundle.measurement_secret().reveal())
        pems = [self.bundle.join_ca_key.reveal(), self.vault.decrypt(self.site.policy_key.read_bytes())]
        if self.site.admin_key.exists():
            pems.append(self.vault.decrypt(self.site.admin_key.read_bytes()))
        return [
            *(one for secret in raw for one in spellings(secret)),
            *(one for pem in pems for one in spellings_of_pem(pem)),
        ]
