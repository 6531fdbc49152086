# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that all control planes of a cluster share, as kubeadm creates them."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.control_plane import ControlPlaneMaterial
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ENCRYPTION = b"""apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secrets]
    providers:
      - secretbox: {keys: [{name: first, secret: Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5LTAwMDA=}]}
      - identity: {}
"""


@functools.cache
def shared_files() -> Mapping[str, bytes]:
    """Return three CAs and the key of the service accounts, by name below /etc/kubernetes."""
    files = {}
    for stem in ("pki/ca", "pki/etcd/ca", "pki/front-proxy-ca"):
        key = ec.generate_private_key(ec.SECP256R1())
        files[f"{stem}.crt"] = _certificate(stem, key).public_bytes(serialization.Encoding.PEM)
        files[f"{stem}.key"] = _private(key)
    signer = ec.generate_private_key(ec.SECP256R1())
    files["pki/sa.key"] = _private(signer)
    files["pki/sa.pub"] = signer.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return files


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the files below ``directory``."""
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)


class GivenControlPlane:
    """A source in memory; raises ``read_error`` if set, counts ``reads``."""

    def __init__(self) -> None:
        self.read_error: Exception | None = None
        self.reads = 0

    def read(self) -> ControlPlaneMaterial:
        """Return the files and an abbreviated policy."""
        self.reads += 1
        if self.read_error is not None:
            raise self.read_error
        files = {name: SecretBytes(data) for name, data in shared_files().items()}
        return ControlPlaneMaterial(files=files, policy=SecretBytes(b'{"kind": "AttestationPolicy"}'))


def _certificate(stem: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, stem)])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    dated = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=2))
    return dated.serial_number(x509.random_serial_number()).sign(key, hashes.SHA256())


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
