# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recovery kits for tests: a fictional cluster, cheap locks, and a token of SoftHSM2."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils._deps.crypto import ed25519, rsa, serialization
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import Cost, oaep, token_key_digest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.kit import Kit
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KeyServiceError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import (
    cluster_id,
    emergency_ssh_seed,
    measurement_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import TokenFacts

NOW = datetime(2026, 11, 22, 6, 45, tzinfo=UTC)
MASTER = MasterSecret(key=SecretBytes(bytes(range(32))), salt=SecretBytes(bytes(range(100, 132))))
SALT = b"\7" * 32
PASSPHRASE = SecretBytes(b"correct horse battery")
CHEAP = Cost(memory_kib=64 << 10, passes=1, lanes=1)
FILES = (
    ("cluster.yml", b"version: 1\n"),
    ("host_vars/w-1/identity.yml", b"attested_ek: sha256:00\n"),
    ("policy/r650.yml", "# Prüfung\n".encode()),
)

PIN = "31415926"
_MODULES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/*/softhsm/libsofthsm2.so")


def sample_kit(*, master: MasterSecret = MASTER, files: tuple[tuple[str, bytes], ...] = FILES) -> Kit:
    """Return a complete kit of a fictional cluster; its join CA and policy key are new each time."""
    join_ca = make_join_ca("prod", now=NOW)
    policy_key = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    secret = measurement_secret(master)
    return Kit(
        written="2026-11-22T06:45:00Z",
        cluster_id=cluster_id(secret, SALT),
        measurement_salt=SALT,
        join_ca=join_ca.certificate,
        policy_generation=3,
        master=master,
        measurement_secret=secret,
        emergency_ssh_seed=emergency_ssh_seed(master),
        join_ca_key=SecretBytes(join_ca.private_key),
        policy_key=SecretBytes(policy_key),
        files=files,
    )


class KeyInMemory:
    """An RSA key in place of a token's; implements the production's `Token`."""

    def __init__(self, bits: int = 2048) -> None:
        """Make the key."""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=bits)

    def public_key(self) -> bytes:
        """Return the public key to which a kit is encrypted (PEM)."""
        return self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def unwrap(self, facts: TokenFacts) -> SecretBytes:
        """Return the file key; raises KIT_KEY_WRONG as a token does."""
        if token_key_digest(self._key.public_key()) != facts.key_sha256:
            raise KeyServiceError(
                "expected the key that this kit is encrypted to in the token", reason=Reason.KIT_KEY_WRONG
            )
        return SecretBytes(self._key.decrypt(facts.wrapped, oaep()))


def ended(data: bytes) -> bytes:
    """Return a kit with a valid end line, as after a manipulation."""
    whole = data[: data.rindex(b"\nend: ") + 1]
    return whole + b"end: " + hashlib.sha256(whole).hexdigest().encode() + b"\n"


def altered(data: bytes, name: bytes) -> bytes:
    """Return a kit with another first digit in the line ``name``, and a valid end line."""
    at = data.index(b"\n" + name + b": ") + len(name) + 3
    digit = b"0" if data[at : at + 1] != b"0" else b"1"
    return ended(data[:at] + digit + data[at + 1 :])


def missing_for_age() -> str:
    """Return why recipients cannot be tested here, "" if they can."""
    return "" if importlib.util.find_spec("pyrage") else "the Python package pyrage is not there (extra kit)"


def missing_for_token() -> str:
    """Return why tokens cannot be tested here, "" if they can."""
    if not importlib.util.find_spec("pkcs11"):
        return "the Python package python-pkcs11 is not there (extra pkcs11)"
    if not (_softhsm_module() and shutil.which("softhsm2-util")):
        return "SoftHSM2 is not there (tests/support/prerequisites more)"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftToken:
    """A token of SoftHSM2 with one RSA key; ``environment`` has the variables for a process that uses it."""

    module: str
    label: str
    environment: Mapping[str, str]


def soft_token(folder: Path, *, label: str = "kit") -> SoftToken:
    """Create a token below ``folder``; the library generates the key in the process of a separate program."""
    tokens = folder / "tokens"
    tokens.mkdir(parents=True, exist_ok=True)
    settings = folder / "softhsm2.conf"
    settings.write_text(f"directories.tokendir = {tokens}\nobjectstore.backend = file\nlog.level = ERROR\n", "utf-8")
    environment = {**os.environ, "SOFTHSM2_CONF": str(settings)}
    module = _softhsm_module()
    words = ("--init-token", "--free", "--label", label, "--so-pin", "27182818", "--pin", PIN, "--module", module)
    subprocess.run(["softhsm2-util", *words], env=environment, check=True, capture_output=True, timeout=900)
    return SoftToken(module=module, label=label, environment=environment)


def _softhsm_module() -> str:
    named = os.environ.get("ATTESTED_TEST_SOFTHSM", "")
    if named:
        return named
    found = [path for pattern in _MODULES for path in Path("/").glob(pattern.removeprefix("/"))]
    return str(found[0]) if found else ""
