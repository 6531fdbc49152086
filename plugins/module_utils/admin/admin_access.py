# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's way into the cluster: a key that never leaves the admin's machine, a certificate that soon ends."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._deps.crypto import ec, exceptions, hashes, serialization, x509
from .._deps.yaml import yaml
from ..core.documents import load_document
from ..core.files import read_bytes, write_atomic
from ..errors import SiteError
from ..reasons import Reason

if TYPE_CHECKING:
    from datetime import datetime

    from .layout import Site
    from .secrets import Vault

ADMIN_USER = "attested:admin"
RENEW_BELOW = timedelta(hours=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the cluster is reached: ``server`` (host:port), the name its certificate must have, its CA (PEM)."""

    cluster_name: str
    server: str
    tls_server_name: str
    cluster_ca: bytes
    certificate: bytes


def needs_certificate(site: Site, vault: Vault, *, now: datetime, authorities: bytes = b"") -> bool:
    """Return whether there is no kubeconfig yet, or one whose certificate ends within `RENEW_BELOW`.

    ``authorities`` (PEM): or one that believes others than these, or whose certificate the first of them did not sign.
    """
    if not site.admin_kubeconfig.exists():
        return True
    body = _kubeconfig(site, vault)
    certificate = x509.load_pem_x509_certificate(base64.b64decode(body["users"][0]["user"]["client-certificate-data"]))
    if authorities and not _is_of(body["clusters"][0]["cluster"], certificate, authorities):
        return True
    return certificate.not_valid_after_utc - now < RENEW_BELOW


def _kubeconfig(site: Site, vault: Vault) -> dict[str, Any]:
    """Return the admin's kubeconfig, which has one cluster and one user; raises ADMIN_KUBECONFIG_MALFORMED."""
    try:
        body: dict[str, Any] = load_document(vault.decrypt(read_bytes(site.admin_kubeconfig)))
        texts = (
            body["current-context"],
            body["clusters"][0]["cluster"]["certificate-authority-data"],
            *(body["users"][0]["user"][name] for name in ("client-certificate-data", "client-key-data")),
        )
        whole = all(isinstance(one, str) for one in texts)
    except (ValueError, KeyError, IndexError, TypeError):
        whole = False
    if not whole:
        raise SiteError(
            "expected a kubeconfig with one cluster and one user in .secrets/admin.kubeconfig, got something else",
            reason=Reason.ADMIN_KUBECONFIG_MALFORMED,
        )
    return body


def _is_of(cluster: dict[str, Any], certificate: x509.Certificate, authorities: bytes) -> bool:
    wanted = x509.load_pem_x509_certificates(authorities)
    believed = x509.load_pem_x509_certificates(base64.b64decode(cluster["certificate-authority-data"]))
    return believed == wanted and _signed(wanted[0], certificate)


def _signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return False
    return True


def has_access(site: Site, vault: Vault, *, cluster_name: str, now: datetime) -> bool:
    """Return whether .secrets/admin.kubeconfig is good, for the cluster of this name and by the admin's own key."""
    if not site.admin_key.exists() or needs_certificate(site, vault, now=now):
        return False
    body = _kubeconfig(site, vault)
    key = base64.b64decode(body["users"][0]["user"]["client-key-data"])
    return bool(body["current-context"] == cluster_name and key == vault.decrypt(read_bytes(site.admin_key)))


def request_certificate(site: Site, vault: Vault) -> bytes:
    """Return a certificate request (PEM) for the admin's key, which is made on first use and kept in the vault."""
    key = _load_key(site, vault) if site.admin_key.exists() else _make_key(site, vault)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, ADMIN_USER)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def write_kubeconfig(site: Site, vault: Vault, access: Access) -> None:
    """Write .secrets/admin.kubeconfig, encrypted."""
    text = render_kubeconfig(access, private_key=vault.decrypt(read_bytes(site.admin_key)))
    write_atomic(site.admin_kubeconfig, vault.encrypt(text))


def render_kubeconfig(access: Access, *, private_key: bytes) -> bytes:
    """Return a kubeconfig with everything embedded."""
    cluster: dict[str, Any] = {
        "server": f"https://{access.server}",
        "tls-server-name": access.tls_server_name,
        "certificate-authority-data": _text(access.cluster_ca),
    }
    user = {"client-certificate-data": _text(access.certificate), "client-key-data": _text(private_key)}
    name = access.cluster_name
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": ADMIN_USER, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": ADMIN_USER}}],
        "current-context": name,
    }
    return str(yaml.safe_dump(body, sort_keys=False)).encode()


def _make_key(site: Site, vault: Vault) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_atomic(site.admin_key, vault.encrypt(pem))
    return key


def _load_key(site: Site, vault: Vault) -> Any:
    return serialization.load_pem_private_key(vault.decrypt(read_bytes(site.admin_key)), password=None)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
