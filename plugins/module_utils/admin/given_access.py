# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the access that a machine gives an admin: a kubeconfig without a key after init, later certificates. Pure.

Only the cluster's CA and the certificate are used; the site defines the address of the cluster.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._deps.crypto import exceptions, serialization, unreadable, x509
from ..core.documents import load_documents
from ..errors import Refusal
from ..reasons import Reason
from .admin_access import ADMIN_USER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

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
