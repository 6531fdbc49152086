# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An admin's kubeconfig: a key that never leaves the admin's machine, and a short-lived certificate."""

from __future__ import annotations

import base64
import stat
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._deps.crypto import ec, exceptions, hashes, serialization, unreadable, x509
from .._deps.yaml import yaml
from ..core.documents import load_document, load_documents
from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import Refusal, SiteError
from ..reasons import Reason
from .site_directory import SITE_ADMIN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from .secrets import Vault
    from .site_directory import Site


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


# Check the access that a machine gives an admin: a kubeconfig without a key after init, later certificates. Pure.
#
# Only the cluster's CA and the certificate are used; the site defines the address of the cluster.

_LIMIT = 1 << 16
_CA, _CERTIFICATE = "certificate-authority-data", "client-certificate-data"
_SECRET = b"PRIVATE KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAccess:
    """The cluster's CA (two during a rotation), and the admin's certificate, in PEM."""

    cluster_ca: bytes
    certificate: bytes


def accept_access(data: bytes, *, request: bytes, now: datetime) -> GivenAccess:
    """Return the access in the kubeconfig ``data``, issued for ``request`` (PEM); raises `Refusal`.

    1. It is YAML of at most 64 KiB with one cluster and one user. INIT_KUBECONFIG_MALFORMED
    2. The user has a certificate and nothing else, and the file has no private key. INIT_KUBECONFIG_HOLDS_KEY
    3. CA and certificate are one certificate each. INIT_KUBECONFIG_MALFORMED
    4. The certificate is for the key of ``request``. INIT_CERTIFICATE_FOREIGN
    5. It is the admin's, signed by that CA, and has not expired. INIT_CERTIFICATE_UNUSABLE
    """
    cluster, user = _entries(data)  # 1
    if set(user) - {_CERTIFICATE} or _SECRET in data:  # 2
        raise _holds_key()
    ca, leaf = _certificate(cluster, _CA), _certificate(user, _CERTIFICATE)  # 3
    _require_own(leaf, request)  # 4
    _require_usable(leaf, ca, now)  # 5
    pem = serialization.Encoding.PEM
    return GivenAccess(cluster_ca=ca.public_bytes(pem), certificate=leaf.public_bytes(pem))


def accept_authorities(data: bytes) -> bytes:
    """Return only the CA certificates in ``data``, in PEM; raises INIT_KUBECONFIG_MALFORMED."""
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in _loaded(data, _CA))


def accept_certificate(
    given: GivenAccess, *, request: bytes, user: str, groups: Sequence[str], now: datetime
) -> GivenAccess:
    """Return the certificate that a control plane issued for ``request`` (PEM); raises `Refusal`.

    Like steps 3 to 5 of `accept_access`, but for ``user`` and exactly these ``groups``, signed by the first of several
    CAs.
    """
    authorities = _loaded(given.cluster_ca, _CA)
    leaf, *others = _loaded(given.certificate, _CERTIFICATE)
    if others:
        raise _malformed(f"expected one certificate, got {1 + len(others)}")
    _require_own(leaf, request)
    _require_usable(leaf, authorities[0], now, user=user)
    held = {str(one.value) for one in leaf.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)}
    if held != set(groups):
        raise _unusable(
            f"expected a certificate for the groups {', '.join(groups) or 'none'}, got one for "
            f"{', '.join(sorted(held))[:100] or 'none'}: the control plane may have an older release, run prepare"
        )
    pem = serialization.Encoding.PEM
    return GivenAccess(cluster_ca=accept_authorities(given.cluster_ca), certificate=leaf.public_bytes(pem))


def _require_own(leaf: x509.Certificate, request: bytes) -> None:
    if leaf.public_key() != x509.load_pem_x509_csr(request).public_key():
        raise Refusal(
            "expected a certificate for the admin's own key, got another one",
            reason=Reason.INIT_CERTIFICATE_FOREIGN,
        )


def _entries(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(data) > _LIMIT:
        raise _malformed(f"expected a kubeconfig of at most {_LIMIT} bytes, got {len(data)}")
    try:
        documents = load_documents(data.decode("utf-8"))
    except ValueError as error:
        raise _malformed("expected a kubeconfig in YAML, got something else") from error
    body = documents[0] if len(documents) == 1 else None
    if not isinstance(body, dict) or body.get("kind") != "Config":
        raise _malformed("expected one document of the kind Config, got something else")
    return _only(body, "clusters", "cluster"), _only(body, "users", "user")


def _only(body: dict[str, Any], plural: str, name: str) -> dict[str, Any]:
    """Return the one entry of a list of a kubeconfig."""
    entries = body.get(plural)
    entry = entries[0] if isinstance(entries, list) and len(entries) == 1 else None
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, dict):
        raise _malformed(f"expected one entry in {plural}, got something else")
    return value


def _decoded(entry: dict[str, Any], name: str) -> bytes:
    text = entry.get(name)
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError as error:
        raise _malformed(f"expected {name} in base64, got something else") from error
    if _SECRET in data:
        raise _holds_key()
    return data


def _loaded(data: bytes, name: str) -> list[x509.Certificate]:
    """Return the certificates in ``data`` (PEM), at least one."""
    try:
        found = x509.load_pem_x509_certificates(data)
        for one in found:
            _parsed = (one.public_key(), one.subject, one.not_valid_after_utc)  # reads and checks each field
    except unreadable() as error:
        raise _malformed(f"expected a certificate in PEM as {name}, got something else") from error
    return found


def _certificate(entry: dict[str, Any], name: str) -> x509.Certificate:
    found = _loaded(_decoded(entry, name), name)
    if len(found) != 1:
        raise _malformed(f"expected one certificate in {name}, got {len(found)}")
    return found[0]


def _require_usable(leaf: x509.Certificate, ca: x509.Certificate, now: datetime, *, user: str = ADMIN_USER) -> None:
    try:
        leaf.verify_directly_issued_by(ca)
    except (ValueError, TypeError, exceptions.InvalidSignature) as error:
        raise _unusable(
            "expected a certificate of the cluster CA in the same answer, got one of another issuer"
        ) from error
    names = [str(one.value) for one in leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    if names != [user]:
        raise _unusable(f"expected a certificate for {user}, got one for {', '.join(names)[:100] or 'no user'!r}")
    if leaf.not_valid_after_utc <= now:
        raise _unusable(
            f"expected a certificate that is good at {now:%Y-%m-%dT%H:%M:%SZ}, got one until {leaf.not_valid_after_utc}"
        )


def _holds_key() -> Refusal:
    return Refusal(
        f"expected a kubeconfig whose user has {_CERTIFICATE} and nothing else, got one with a credential",
        reason=Reason.INIT_KUBECONFIG_HOLDS_KEY,
    )


def _malformed(message: str) -> Refusal:
    return Refusal(message, reason=Reason.INIT_KUBECONFIG_MALFORMED)


def _unusable(message: str) -> Refusal:
    return Refusal(message, reason=Reason.INIT_CERTIFICATE_UNUSABLE)


# A kubeconfig in clear, as kubectl reads it: a file of its own, or merged into a file with other clusters.
#
# No other entry is lost: a file is changed only if it is a valid kubeconfig, and only the entries with the name of this
# admin and cluster are changed.

_MODE = 0o600
_LISTS = ("clusters", "users", "contexts")
_HINT = "Repair or move the file, or name another one: kubeconfig=FILE, or the variable KUBECONFIG of the shell."


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A file and its wanted content."""

    path: Path
    text: bytes = field(repr=False)

    @property
    def is_current(self) -> bool:
        """Whether the file already has that content and mode 0600."""
        if not self.path.is_file() or stat.S_IMODE(self.path.stat().st_mode) != _MODE:
            return False
        return read_bytes(self.path) == self.text

    def write(self) -> None:
        """Write the file by rename, with mode 0600 from the first byte on; raises FILE_UNUSABLE."""
        make_directory(self.path.parent)
        write_atomic(self.path, self.text, mode=_MODE)


def own_file(path: Path, body: dict[str, Any], *, site: Site) -> Copy:
    """Return a file with only the kubeconfig ``body``; raises OPTION_INVALID.

    The file must be outside of the site, which is a repository. It must be absent, or an earlier kubeconfig of this
    user and cluster.
    """
    path = path.resolve()
    if path.is_relative_to(site.root):
        raise _invalid(f"expected kubeconfig as a file outside of the site, which is a repository, got {path}")
    if path.exists():
        found = _parsed(path)
        for plural in _LISTS:
            if _names(found[plural]) != _names(body[plural]):
                raise _invalid(
                    f"expected no file at {path}, or a kubeconfig of {body['users'][0]['name']} for "
                    f"{body['current-context']} alone, got another one, which was left unchanged; merge=true keeps its "
                    "entries"
                )
    return Copy(path=path, text=dump(body))


def merged(path: Path, body: dict[str, Any]) -> Copy:
    """Return a file with its entries and the kubeconfig ``body`` as the context USER@CLUSTER; raises OPTION_INVALID.

    The current context stays, and so do other fields of the entries of that name. If anything changes, comments are
    lost.
    """
    path = path.resolve()
    held = _parsed(path)
    whole = deepcopy(held)
    name = f"{body['users'][0]['name']}@{body['current-context']}"
    cluster = _entry(whole, "clusters", name, "cluster")
    wanted = body["clusters"][0]["cluster"]
    own = ("server", "certificate-authority-data")
    if cluster and not any(cluster.get(key) == wanted[key] for key in own):
        raise _invalid(
            f"expected the cluster {name} in {path} to have the server {wanted['server']} or its CA, got "
            f"{cluster.get('server')!r}: it is another cluster and was left unchanged; rename or remove it"
        )
    cluster |= wanted
    user = _entry(whole, "users", name, "user")
    user.clear()
    user |= body["users"][0]["user"]
    _entry(whole, "contexts", name, "context").update(cluster=name, user=name)
    whole["current-context"] = whole.get("current-context") or name
    return Copy(path=path, text=read_bytes(path) if whole == held else dump(whole))


def _parsed(path: Path) -> dict[str, Any]:
    """Return the kubeconfig of a file, a new one if the file does not exist; its three lists are checked."""
    try:
        body = load_document(read_bytes(path)) if path.exists() else None
    except ValueError as error:
        raise _invalid(f"expected a kubeconfig at {path}, got no supported YAML ({error})") from error
    if body is None:
        body = {"apiVersion": "v1", "kind": "Config"}
    if not isinstance(body, dict) or body.get("kind", "Config") != "Config":
        raise _invalid(f"expected a kubeconfig, of the kind Config, at {path}, got something else")
    for plural in _LISTS:
        entries = body[plural] = body.get(plural) or []
        known = isinstance(entries, list) and all(_is_entry(one, plural.removesuffix("s")) for one in entries)
        if not known:
            raise _invalid(f"expected {plural} in {path} as a list of entries with a name, got something else")
    return body


def _is_entry(one: Any, singular: str) -> bool:
    return isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get(singular) or {}, dict)


def _names(entries: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in entries]


def _entry(body: dict[str, Any], plural: str, name: str, singular: str) -> dict[str, Any]:
    """Return the value of the entry ``name``, which is added if it is missing."""
    found = next((one for one in body[plural] if one["name"] == name), None)
    if found is None:
        found = {"name": name}
        body[plural].append(found)
    found[singular] = found.get(singular) or {}
    value: dict[str, Any] = found[singular]
    return value


def _invalid(message: str) -> SiteError:
    return SiteError(message, reason=Reason.OPTION_INVALID, hint=_HINT)
