# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible Vault for `admin.secrets`: in memory, with the vault passwords of this run."""

from __future__ import annotations

from ansible.errors import AnsibleError
from ansible.parsing.vault import VaultLib, VaultSecretsContext
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason


class AnsibleVault:
    """Encrypts and decrypts in memory with the vault passwords of the running playbook."""

    def __init__(self) -> None:
        """Use the passwords that the command line or ansible.cfg names; raises SITE_VAULT without any."""
        context = VaultSecretsContext.current(optional=True)
        if context is None or not context.secrets:
            raise SiteError("expected a vault password, this run was given none", reason=Reason.SITE_VAULT)
        self._vault = VaultLib(secrets=context.secrets)

    def encrypt(self, data: bytes) -> bytes:
        """Return ``data`` as Ansible Vault text."""
        return bytes(self._vault.encrypt(data))

    def decrypt(self, data: bytes) -> bytes:
        """Return the clear bytes of Ansible Vault text; raises SITE_VAULT."""
        try:
            return bytes(self._vault.decrypt(data))
        except AnsibleError as error:
            raise SiteError(
                "expected a file that this run's vault password opens, it does not", reason=Reason.SITE_VAULT
            ) from error
