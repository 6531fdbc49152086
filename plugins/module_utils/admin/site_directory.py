# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site directory: its paths, and cluster.yml, the public facts of its cluster, which `secrets` writes."""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.yaml import yaml
from ..core.documents import load_document
from ..core.files import read_bytes
from ..errors import SiteError
from ..keyservice.derive import cluster_id, measurement_secret
from ..reasons import Reason

if TYPE_CHECKING:
    from ..keyservice.master import MasterSecret


# The paths in a site directory; one site directory is one cluster.

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


VERSION = 1
_ID_BYTES = 32
_HEADER = "---\n# Written by attested.kubernetes.secrets. Public; commit it. Every node of the cluster pins join_ca.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMark:
    """The last policy that the site signed: generation, digest of its content (hex), all keys ever revoked."""

    generation: int = 0
    content_sha256: str = ""
    revoked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFile:
    """The public facts: cluster id and measurement salt (32 bytes each), join CA and policy key (PEM)."""

    cluster_id: bytes
    measurement_salt: bytes
    join_ca: bytes
    policy_key: bytes
    policy: PolicyMark = PolicyMark()

    def require_master(self, master: MasterSecret) -> None:
        """Raise CLUSTER_ID_MISMATCH unless ``master`` is the master secret of this cluster."""
        derived = cluster_id(measurement_secret(master), self.measurement_salt)
        if derived != self.cluster_id:
            raise SiteError(
                f"expected the master secret of cluster {self.cluster_id.hex()}, got one that derives {derived.hex()}",
                reason=Reason.CLUSTER_ID_MISMATCH,
            )


def read_cluster_file(path: str | Path) -> ClusterFile:
    """Return the facts in the file ``path``; raises FILE_UNUSABLE and SITE_CLUSTER_FILE."""
    return parse(read_bytes(path))


def parse_salt(text: str) -> bytes:
    """Return the measurement salt that a person gave as 64 hex digits; raises SITE_SECRET_MALFORMED."""
    if not _is_id(text):
        raise SiteError("expected the measurement salt as 64 hex digits", reason=Reason.SITE_SECRET_MALFORMED)
    return bytes.fromhex(text)


def render(cluster: ClusterFile) -> bytes:
    """Return the file's bytes; equal facts give equal bytes."""
    body: dict[str, Any] = {
        "version": VERSION,
        "cluster_id": cluster.cluster_id.hex(),
        "measurement_salt": cluster.measurement_salt.hex(),
        "join_ca": cluster.join_ca.decode("ascii"),
        "policy_key": cluster.policy_key.decode("ascii"),
    }
    if cluster.policy.generation:
        body["policy"] = {
            "generation": cluster.policy.generation,
            "content_sha256": cluster.policy.content_sha256,
            "revoked": list(cluster.policy.revoked),
        }
    text: str = yaml.dump(body, Dumper=_block_dumper(), sort_keys=False, default_flow_style=False)
    return (_HEADER + text).encode()


def parse(data: bytes) -> ClusterFile:
    """Return the facts in ``data``; raises SITE_CLUSTER_FILE naming every problem found."""
    try:
        body = load_document(data)
    except ValueError as error:
        raise SiteError("expected YAML in cluster.yml, got something else", reason=Reason.SITE_CLUSTER_FILE) from error
    problems = _problems(body)
    if problems:
        raise SiteError(f"cluster.yml: {'; '.join(problems)}", reason=Reason.SITE_CLUSTER_FILE)
    return ClusterFile(
        cluster_id=bytes.fromhex(body["cluster_id"]),
        measurement_salt=bytes.fromhex(body["measurement_salt"]),
        join_ca=body["join_ca"].encode("ascii"),
        policy_key=body["policy_key"].encode("ascii"),
        policy=_mark(body.get("policy")),
    )


def _problems(body: Any) -> list[str]:
    if not isinstance(body, dict):
        return ["expected a mapping"]
    problems = []
    if body.get("version") != VERSION:
        problems.append(f"expected version {VERSION}, got {body.get('version')!r:.80}")
    problems += [f"expected {name} as 64 hex digits" for name in _HEX_FIELDS if not _is_id(body.get(name))]
    problems += [f"expected {name} in PEM" for name in _PEM_FIELDS if not _is_pem(body.get(name))]
    if not _is_mark(body.get("policy")):
        problems.append("expected policy as generation, content_sha256 and revoked")
    unknown = sorted(set(body) - {"version", "policy", *_HEX_FIELDS, *_PEM_FIELDS}, key=str)
    return problems + [f"unknown field {name}" for name in unknown]


_HEX_FIELDS = ("cluster_id", "measurement_salt")
_PEM_FIELDS = ("join_ca", "policy_key")


def _is_id(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(binascii.unhexlify(value)) == _ID_BYTES
    except (binascii.Error, ValueError):
        return False


def _is_mark(value: Any) -> bool:
    if value is None:
        return True
    return (
        isinstance(value, dict)
        and set(value) == {"generation", "content_sha256", "revoked"}
        and isinstance(value["generation"], int)
        and value["generation"] > 0
        and isinstance(value["revoked"], list)
        and all(map(_is_id, (value["content_sha256"], *value["revoked"])))
    )


def _mark(value: Any) -> PolicyMark:
    if value is None:
        return PolicyMark()
    return PolicyMark(
        generation=value["generation"], content_sha256=value["content_sha256"], revoked=tuple(value["revoked"])
    )


def _is_pem(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.startswith("-----BEGIN ")


def _block_dumper() -> Any:  # made on first use, because PyYAML may be missing on a machine that imports this file
    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as blocks."""

    Dumper.add_representer(
        str,
        lambda dumper, text: dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
        ),
    )
    return Dumper
