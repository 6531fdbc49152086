# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An admin's kubeconfig: a key that never leaves the admin's machine, and a short-lived certificate."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._deps.crypto import ec, exceptions, hashes, serialization, unreadable, x509
from .._deps.yaml import yaml
from ..core.documents import load_document
from ..core.files import read_bytes, write_atomic
from ..errors import SiteError
from ..reasons import Reason
from .layout import SITE_ADMIN

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from .layout import Site
    from .secrets import Vault

ADMIN_USER = SITE_ADMIN
DEFAULT_HOURS = 24

_BACKDATED = timedelta(minutes=5)  # admin certificates begin earlier, for clocks that differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The content of a kubeconfig: ``server`` (host:port), the name in its certificate, CAs (PEM), a certificate."""

    cluster_name: str
    server: str
    tls_server_name: str
    cluster_ca: bytes
    certificate: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The wanted certificate of an admin; groups and hours that are None stay as they are."""

    user: str = ADMIN_USER
    groups: tuple[str, ...] | None = None
    hours: int | None = None
    renew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePlan:
    """Why a new certificate is due (empty: none is), its groups and hours, and the present certificate (PEM)."""

    why: str
    groups: tuple[str, ...]
    hours: int
    present: bytes = b""


def plan_certificate(
    site: Site, vault: Vault, wanted: Wanted, *, now: datetime, authorities: bytes = b""
) -> CertificatePlan:
    """Decide whether an admin needs a new certificate, for example with less than a quarter of its lifetime left.

    With ``authorities`` (PEM) it is also due if the kubeconfig trusts other CAs, or if the first of them did not sign
    its certificate. Raises ADMIN_KUBECONFIG_MALFORMED.
    """
    path = site.kubeconfig_of(wanted.user)
    if not path.exists():
        hours = DEFAULT_HOURS if wanted.hours is None else wanted.hours
        return CertificatePlan(why="there is no kubeconfig", groups=wanted.groups or (), hours=hours)
    body = _kubeconfig(path, vault)
    pem = base64.b64decode(body["users"][0]["user"]["client-certificate-data"])
    present = x509.load_pem_x509_certificate(pem)
    begins, ends = present.not_valid_before_utc, present.not_valid_after_utc
    held = tuple(str(one.value) for one in present.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME))
    hours = max(1, round((ends - begins - _BACKDATED) / timedelta(hours=1)))
    plan = CertificatePlan(
        why="",
        groups=held if wanted.groups is None else wanted.groups,
        hours=hours if wanted.hours is None else wanted.hours,
        present=pem,
    )
    checks = (
        (wanted.renew, "it was requested"),
        (not _has_key(site, vault, wanted.user, body), "the site has another key, or none"),
        (set(plan.groups) != set(held), f"the present one is for {', '.join(held) or 'no group'}"),
        (plan.hours != hours, f"the present one is for {hours} hours"),
        (bool(authorities) and not _is_of(body["clusters"][0]["cluster"], present, authorities), "the CAs changed"),
        (ends - now < (ends - begins) / 4, f"the present one ends at {ends:%Y-%m-%dT%H:%M:%SZ}"),
    )
    return replace(plan, why=next((why for due, why in checks if due), ""))


def needs_certificate(site: Site, vault: Vault, *, now: datetime, authorities: bytes = b"") -> bool:
    """Return whether the site's own admin needs another certificate, as `plan_certificate` decides."""
    return bool(plan_certificate(site, vault, Wanted(), now=now, authorities=authorities).why)


def _kubeconfig(path: Path, vault: Vault) -> dict[str, Any]:
    """Return an admin's kubeconfig, which has one cluster and one user; raises ADMIN_KUBECONFIG_MALFORMED."""
    try:
        body: dict[str, Any] = load_document(vault.decrypt(read_bytes(path)))
        texts = (
            body["current-context"],
            body["clusters"][0]["cluster"]["certificate-authority-data"],
            *(body["users"][0]["user"][name] for name in ("client-certificate-data", "client-key-data")),
        )
        whole = all(isinstance(one, str) for one in texts)
        _context, *pems, _key = (base64.b64decode(one) if whole else b"" for one in ("", *texts[1:]))
        for certificate in (one for pem in pems for one in x509.load_pem_x509_certificates(pem)):
            _read = (certificate.subject, certificate.not_valid_after_utc)  # reads and checks each field
    except unreadable(KeyError, IndexError):
        whole = False
    if not whole:
        raise SiteError(
            f"expected a kubeconfig with one cluster and one user in .secrets/{path.name}, got something else",
            reason=Reason.ADMIN_KUBECONFIG_MALFORMED,
        )
    return body


def _has_key(site: Site, vault: Vault, user: str, body: dict[str, Any]) -> bool:
    """Return whether the kubeconfig has the key that the site stores for this admin."""
    path = site.key_of(user)
    held = base64.b64decode(body["users"][0]["user"]["client-key-data"])
    return path.exists() and held == vault.decrypt(read_bytes(path))


def _is_of(cluster: dict[str, Any], certificate: x509.Certificate, authorities: bytes) -> bool:
    wanted = x509.load_pem_x509_certificates(authorities)
    trusted = x509.load_pem_x509_certificates(base64.b64decode(cluster["certificate-authority-data"]))
    return trusted == wanted and _signed(wanted[0], certificate)


def _signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return False
    return True


def has_access(site: Site, vault: Vault, *, cluster_name: str, now: datetime) -> bool:
    """Return whether .secrets/admin.kubeconfig is valid, for the cluster of this name and with the admin's own key."""
    if needs_certificate(site, vault, now=now):
        return False
    return bool(_kubeconfig(site.admin_kubeconfig, vault)["current-context"] == cluster_name)


def request_certificate(site: Site, vault: Vault, *, user: str = ADMIN_USER) -> bytes:
    """Return a certificate request (PEM) for an admin's key, which is made on first use and stored in the vault."""
    path = site.key_of(user)
    key = _load_key(path, vault) if path.exists() else _make_key(path, vault)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, user)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def write_kubeconfig(site: Site, vault: Vault, access: Access, *, user: str = ADMIN_USER) -> None:
    """Write an admin's kubeconfig into .secrets/, encrypted."""
    write_atomic(site.kubeconfig_of(user), vault.encrypt(dump(held_body(site, vault, access, user=user))))


def holds(site: Site, vault: Vault, access: Access, *, user: str) -> bool:
    """Return whether .secrets/ has exactly this kubeconfig of an admin."""
    return _kubeconfig(site.kubeconfig_of(user), vault) == held_body(site, vault, access, user=user)


def held_body(site: Site, vault: Vault, access: Access, *, user: str) -> dict[str, Any]:
    """Return an admin's kubeconfig with the key that the site stores, or without one if there is none yet."""
    path = site.key_of(user)
    private_key = vault.decrypt(read_bytes(path)) if path.exists() else b""
    return kubeconfig_body(access, private_key=private_key, user=user)


def kubeconfig_body(access: Access, *, private_key: bytes, user: str = ADMIN_USER) -> dict[str, Any]:
    """Return a kubeconfig with everything embedded, as data."""
    cluster: dict[str, Any] = {
        "server": f"https://{access.server}",
        "tls-server-name": access.tls_server_name,
        "certificate-authority-data": _text(access.cluster_ca),
    }
    credential = {"client-certificate-data": _text(access.certificate), "client-key-data": _text(private_key)}
    name = access.cluster_name
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": credential}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }


def dump(body: dict[str, Any]) -> bytes:
    """Return a kubeconfig as YAML."""
    return str(yaml.safe_dump(body, sort_keys=False, allow_unicode=True)).encode()


def _make_key(path: Path, vault: Vault) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_atomic(path, vault.encrypt(pem))
    return key


def _load_key(path: Path, vault: Vault) -> Any:
    return serialization.load_pem_private_key(vault.decrypt(read_bytes(path)), password=None)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
