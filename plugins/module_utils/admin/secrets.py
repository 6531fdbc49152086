# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secrets of a site: created once, encrypted with Ansible Vault, decrypted only in memory.

`plan` compares the files of the site; `apply` writes the missing ones, the public file last, so an interrupted run is
detected as incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from .._deps.crypto import ed25519, hashes, rsa, serialization, x509
from ..core.files import read_bytes, write_atomic
from ..errors import SiteError
from ..keyservice.ca import make_join_ca
from ..keyservice.key_bundle import KeyBundle, make_bundle
from ..keyservice.master import SecretBytes, generate_master_secret, generate_measurement_salt
from ..keyservice.ring import import_ring
from ..reasons import Reason
from ..rotation.master_secret import MasterPhase
from .site_directory import ClusterFile, read_cluster_file, render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..core.host import Clock, Random
    from ..keyservice.master import MasterSecret
    from .site_directory import Site


_FIRMWARE_KEY_BITS = 2048
"""The key size in bits that all firmware supports."""
_BACKDATED = timedelta(days=1)
_LIFE = timedelta(days=36500)
"""Firmware does not verify the validity period."""


class Vault(Protocol):
    """Encrypt and decrypt with the admin's vault password; the action plugins implement it."""

    def encrypt(self, data: bytes) -> bytes:
        """Return ``data`` encrypted, as text that Ansible Vault reads."""

    def decrypt(self, data: bytes) -> bytes:
        """Return the decrypted bytes; raises SITE_VAULT if the password is absent or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """An existing master secret; a new salt is generated if ``measurement_salt`` is empty."""

    master: MasterSecret = field(repr=False)
    measurement_salt: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsPlan:
    """The present and the missing files, in order of writing; ``origin``: source of the master secret."""

    present: tuple[Path, ...]
    missing: tuple[Path, ...]
    origin: Origin | None = field(default=None, repr=False)


def plan(site: Site, origin: Origin | None = None) -> SecretsPlan:
    """Return which files to create: all or none; raises SITE_SECRETS_INCOMPLETE for a partial set.

    With ``origin``, only the master secret may be missing, and is restored. Raises CLUSTER_ID_MISMATCH if it is not the
    master secret of the existing cluster file.
    """
    files = (site.master_secret, site.join_ca_key, site.policy_key, site.cluster_file)
    present = tuple(path for path in files if path.exists())
    missing = tuple(path for path in files if not path.exists())
    put_back = origin is not None and missing == (site.master_secret,)
    if present and missing and not put_back:
        raise SiteError(
            f"expected all of the site's secrets or none, missing: {', '.join(path.name for path in missing)}",
            reason=Reason.SITE_SECRETS_INCOMPLETE,
        )
    if present and origin is not None:
        read_cluster_file(site.cluster_file).require_master(origin.master)
    return SecretsPlan(present=present, missing=missing, origin=origin)


def apply(site: Site, wanted: SecretsPlan, *, name: str, vault: Vault, clock: Clock, random: Random) -> ClusterFile:
    """Write the missing files of ``wanted`` and return the public facts."""
    if not wanted.missing:
        return read_cluster_file(site.cluster_file)
    origin = wanted.origin
    if origin is not None and wanted.present:
        write_atomic(site.master_secret, vault.encrypt(origin.master.to_json()))
        return read_cluster_file(site.cluster_file)
    join_ca = make_join_ca(name, now=clock.now())
    policy_private, policy_public = _new_policy_key()
    bundle = make_bundle(
        master=origin.master if origin else generate_master_secret(random),
        measurement_salt=(origin and origin.measurement_salt) or generate_measurement_salt(random),
        join_ca_key=SecretBytes(join_ca.private_key),
        join_ca_certificate=join_ca.certificate,
        policy_key=policy_public,
    )
    public = _public_facts(bundle)
    write_atomic(site.master_secret, vault.encrypt(bundle.master.to_json()))
    write_atomic(site.join_ca_key, vault.encrypt(join_ca.private_key))
    write_atomic(site.policy_key, vault.encrypt(policy_private))
    write_atomic(site.cluster_file, render(public), mode=0o644)
    return public


def plan_boot_key(site: Site) -> tuple[Path, ...]:
    """Return the files of the Secure Boot key to create: both or none.

    Raises `SiteError` SITE_SECRETS_INCOMPLETE if one of them is missing: firmware would not have a new key.
    """
    files = (site.secure_boot_key, site.secure_boot_certificate)
    missing = tuple(path for path in files if not path.exists())
    if missing and missing != files:
        raise SiteError(
            f"expected both files of the key for Secure Boot or none, missing: {missing[0].name}",
            reason=Reason.SITE_SECRETS_INCOMPLETE,
        )
    return missing


def make_boot_key(site: Site, *, name: str, vault: Vault, clock: Clock) -> None:
    """Create the key that signs images of the cluster ``name``, then its certificate."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_FIRMWARE_KEY_BITS)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{name[:40]} Secure Boot")])
    start = clock.now() - _BACKDATED
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), start, start + _LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_atomic(site.secure_boot_key, vault.encrypt(private))
    write_atomic(site.secure_boot_certificate, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)


def load(site: Site, vault: Vault) -> KeyBundle:
    """Return the decrypted secrets; raises CLUSTER_ID_MISMATCH if they do not match cluster.yml."""
    if plan(site).missing:
        raise SiteError(f"expected secrets in {site.secrets}, found none", reason=Reason.SITE_SECRETS_INCOMPLETE)
    public = read_cluster_file(site.cluster_file)
    bundle = KeyBundle(
        ring=import_ring(vault.decrypt(read_bytes(site.master_secret))),
        measurement_salt=public.measurement_salt,
        join_ca_key=SecretBytes(vault.decrypt(read_bytes(site.join_ca_key))),
        join_ca_certificate=public.join_ca,
        policy_key=public.policy_key,
        cluster_id=public.cluster_id,
    )
    bundle.require_cluster()
    return bundle


def _public_facts(bundle: KeyBundle) -> ClusterFile:
    return ClusterFile(
        cluster_id=bundle.cluster_id,
        measurement_salt=bundle.measurement_salt,
        join_ca=bundle.join_ca_certificate,
        policy_key=bundle.policy_key,
    )


def _new_policy_key() -> tuple[bytes, bytes]:
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public


# The site's part of a rotation of the master secret (ADR 0042).
#
# The site gets the new version first and removes the old one last, each by one write of one encrypted file.

OWN_PHASES = (MasterPhase.MAKE.value, MasterPhase.FORGET.value)
"""The phases that change only the site."""


def apply_in_site(site: Site, vault: Vault, plan: Mapping[str, Any], *, random: Random) -> bool:
    """Do the first phase of ``plan`` (of `rotation.values`) if it is the site's own, and return whether it was.

    ``make`` adds a new version to the one in force; ``forget`` keeps only the successor. Once the site's file exists,
    no other code changes it. It is written atomically.
    """
    if not is_own(plan):
        return False
    ring = load(site, vault).ring
    if plan["phases"][0] == MasterPhase.MAKE.value:
        ring = ring.with_successor(generate_master_secret(random))
    else:
        ring = ring.ordered((plan["successor"],))
    write_atomic(site.master_secret, vault.encrypt(ring.to_json()))
    return True


def is_own(plan: Mapping[str, Any]) -> bool:
    """Return whether the first phase of a plan is the site's own."""
    return any(phase in OWN_PHASES for phase in plan["phases"][:1])
