# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paths in a site directory; one site directory is one cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import SiteError
from ..reasons import Reason

SITE_ADMIN = "attested:admin"
"""The user of the site's own admin."""


@dataclass(frozen=True, slots=True)
class Site:
    """The paths of one site; ``root`` is the directory of its inventory."""

    root: Path

    @classmethod
    def at(cls, root: str | Path) -> Site:
        """Return the site at ``root``; raises SITE_NOT_FOUND if it has no hosts.yml."""
        path = Path(root).resolve()
        if not (path / "hosts.yml").is_file():
            raise SiteError(f"expected a site directory with hosts.yml at {path}", reason=Reason.SITE_NOT_FOUND)
        return cls(path)

    @property
    def cluster_file(self) -> Path:
        """The public facts of the cluster, committed."""
        return self.root / "cluster.yml"

    @property
    def secrets(self) -> Path:
        """Ansible-Vault files, git-ignored, mode 0700."""
        return self.root / ".secrets"

    @property
    def master_secret(self) -> Path:
        """Master key and salt."""
        return self.secrets / "master-secret.json"

    @property
    def join_ca_key(self) -> Path:
        """Private key of the join CA."""
        return self.secrets / "join-ca-key.pem"

    @property
    def policy_key(self) -> Path:
        """Private key that signs the policy."""
        return self.secrets / "policy-key.pem"

    @property
    def secure_boot_key(self) -> Path:
        """Private key that signs images for Secure Boot; only a site that asked for one has it."""
        return self.secrets / "secure-boot-key.pem"

    @property
    def secure_boot_certificate(self) -> Path:
        """Its certificate, for the firmware of machines; committed."""
        return self.root / "secure-boot.pem"

    @property
    def admin_kubeconfig(self) -> Path:
        """The admin's kubeconfig; its key never leaves this machine."""
        return self.secrets / "admin.kubeconfig"

    @property
    def admin_key(self) -> Path:
        """The admin's private key."""
        return self.secrets / "admin-key.pem"

    def kubeconfig_of(self, admin: str) -> Path:
        """Return the path of an admin's kubeconfig."""
        return self.admin_kubeconfig if admin == SITE_ADMIN else self.secrets / f"admin-{admin}.kubeconfig"

    def key_of(self, admin: str) -> Path:
        """Return the path of an admin's private key."""
        return self.admin_key if admin == SITE_ADMIN else self.secrets / f"admin-{admin}-key.pem"

    @property
    def kit_mark(self) -> Path:
        """A MAC over the content of the last recovery kit, under a key of the master secret; no secret itself."""
        return self.secrets / "recovery-kit.mark"

    def identity_file(self, node: str) -> Path:
        """Return the path of the file with the TPM of ``node``; written by enroll, committed."""
        return self.root / "host_vars" / node / "identity.yml"

    def policy_directory(self, chosen: str | Path | None = None) -> Path:
        """Return the directory of the profiles: ``chosen``, or policy/ of the site."""
        return Path(chosen) if chosen else self.root / "policy"
