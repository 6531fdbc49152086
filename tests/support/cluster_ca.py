# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster CA like kubeadm's, and the answer of a machine to an admin's init."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.admin import issue_admin_certificate
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import Clock

_PEM = serialization.Encoding.PEM


def request_of(key: Any = None, *, name: str = "attested:admin") -> bytes:
    """Return a certificate request (PEM)."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(_PEM)


class ClusterCa:
    """A CA at the paths of kubeadm below ``root``; production code issues the certificates."""

    def __init__(self, root: Path, *, clock: Clock | None = None) -> None:
        """Create the CA."""
        self._clock = clock or SystemClock()
        self._paths = KubernetesPaths(root=root)
        self._paths.ca.parent.mkdir(parents=True)
        key = ec.generate_private_key(ec.SECP256R1())
        self._paths.ca.with_suffix(".key").write_bytes(
            key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        self._paths.ca.write_bytes(self._self_signed(key).public_bytes(_PEM))

    @property
    def certificate(self) -> bytes:
        """The CA's certificate (PEM)."""
        return self._paths.ca.read_bytes()

    def issue(self, request: bytes, *, hours: int = 24) -> bytes:
        """Return a client certificate (PEM) over the key of ``request``."""
        return issue_admin_certificate(request, paths=self._paths, clock=self._clock, hours=hours)

    def body(self, request: bytes, *, hours: int = 24) -> dict[str, Any]:
        """Return the kubeconfig of a machine as data."""
        cluster = {"server": "https://10.0.0.11:6443", "certificate-authority-data": text(self.certificate)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "prod", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"client-certificate-data": text(self.issue(request, hours=hours))}}],
            "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "admin"}}],
            "current-context": "prod",
        }

    def kubeconfig(self, request: bytes, *, hours: int = 24) -> bytes:
        """Return the kubeconfig of a machine."""
        return dump(self.body(request, hours=hours))

    def _self_signed(self, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
        now = self._clock.now()
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=3653))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )


def text(data: bytes) -> str:
    """Return ``data`` in base64."""
    return base64.b64encode(data).decode("ascii")


def dump(body: dict[str, Any]) -> bytes:
    """Return a kubeconfig as YAML."""
    return yaml.safe_dump(body).encode()
