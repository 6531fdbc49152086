# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An admin's init at a chosen moment: a prepared action `init`, for tests of races."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    InventoryNode,
    load_profiles,
    site_policy,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_profile import load_ek_store
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import make_admin_key
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_client import Wish, initiate
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import InitOrder
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import Question

if TYPE_CHECKING:
    from pathlib import Path

WON = "won"
NOBODY_TO_BUILD = "PLAYBOOK_NO_HOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Founding:
    """An admin whose site has ``machine`` as a control plane; ``endpoint`` is its port 9000."""

    machine: str
    endpoint: str
    question: Question
    bundle: Any

    @classmethod
    def of(cls, site: Path, machine: str, *, endpoint: str) -> Founding:
        """Read the site of a lab as its admin, including the vault."""
        password = (site.parent / "vault-password").read_bytes().strip()
        lab = _variables(site / "group_vars" / "nodes" / "lab.yml")
        identity = _variables(site / "host_vars" / machine / "identity.yml")
        store = load_ek_store(lab["attested_endorsement_authorities"])
        node = InventoryNode(
            name=machine,
            role=Role.CONTROL_PLANE,
            ek_sha256=str(identity["attested_ek"]).removeprefix("sha256:"),
            known_by=str(identity["attested_ek_known_by"]),
        )
        bundle = secrets.load(Site.at(str(site)), VaultLib(secrets=[("default", VaultSecret(password))]))
        question = Question(
            cluster_id=bundle.cluster_id,
            policy=site_policy(load_profiles(site / "policy", ["lab"]), [node]),
            demands=Demands(ek_roots=store.roots, ek_intermediates=store.intermediates),
            clock=SystemClock(),
            random=SystemRandom(),
        )
        return cls(machine=machine, endpoint=endpoint, question=question, bundle=bundle)

    def run(self) -> tuple[str, str]:
        """Init the machine once; return the reason code of the error (WON without an error) and the message.

        If the machine's inventory has no host, NOBODY_TO_BUILD means that the lock was taken and nothing ran after it.
        """
        try:
            asyncio.run(self._ask())
        except AttestedError as error:
            return error.code, error.message
        return WON, ""

    async def _ask(self) -> None:
        async for _one in initiate(self.endpoint, self._wish(), self.question):
            pass

    def _wish(self) -> Wish:
        bundle = self.bundle
        order = InitOrder(
            cluster_name="lab",
            kubernetes_version="1.35",
            service_cidr="10.96.0.0/16",
            measurement_salt=bundle.measurement_salt,
            challenge_id=b"",
            sealed=b"",
        )
        ca = JoinCa(certificate=bundle.join_ca_certificate, private_key=bundle.join_ca_key.reveal())
        key = make_admin_key(ca=ca, cluster_id=bundle.cluster_id, now=self.question.clock.now())
        return Wish(order=order, bundle=bundle, admin=key, node=self.machine)


def _variables(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found
