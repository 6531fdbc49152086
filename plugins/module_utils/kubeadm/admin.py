# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Client certificates of admins: short-lived, not in a group of the system, for keys of the admin."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._deps.crypto import hashes, serialization, unreadable, x509
from ..core.files import read_bytes
from ..errors import KubeadmError
from ..key_kinds import KeyUse, is_accepted, kind_of
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.host import Clock
    from .spec import KubernetesPaths

ADMIN_GROUP = "kubeadm:cluster-admins"
"""kubeadm binds this group to cluster-admin. Unlike the rights of system:masters, the binding can be removed."""
MAX_HOURS = 8760
"""One year. Kubernetes cannot revoke a client certificate, so its lifetime is limited."""

_SITE_ADMIN = "attested:admin"  # admin_access.ADMIN_USER, which this package does not import
_RESERVED = ("system:", "attested:")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,63}")
_BACKDATED = timedelta(minutes=5)
_LIMIT = 1 << 16


def groups_of(name: str, groups: Sequence[str] | None) -> tuple[str, ...]:
    """Return ``groups`` without duplicates.

    ``None`` means ADMIN_GROUP for the site's own admin, else no group.
    """
    if groups is None:
        return (ADMIN_GROUP,) if name == _SITE_ADMIN else ()
    return tuple(dict.fromkeys(groups))


def require_subject(name: str, groups: Sequence[str], hours: int) -> None:
    """Raise OPTION_INVALID if an admin's certificate must not have this user, group or lifetime.

    The prefix ``system:`` belongs to Kubernetes, the prefix ``attested:`` to the services and machines of this
    collection.
    """
    if not _NAME.fullmatch(name) or (name.startswith(_RESERVED) and name != _SITE_ADMIN):
        raise _refused("a user name", "begins with neither system: nor attested:", name)
    for group in groups:
        if not _NAME.fullmatch(group) or group.startswith(_RESERVED):
            raise _refused("a group", "begins with neither system: nor attested:", group)
    if not 1 <= hours <= MAX_HOURS:
        raise KubeadmError(
            f"expected a certificate for 1 to {MAX_HOURS} hours, got {hours}", reason=Reason.OPTION_INVALID
        )


def issue_admin_certificate(
    request: bytes,
    *,
    paths: KubernetesPaths,
    clock: Clock,
    hours: int,
    name: str | None = None,
    groups: Sequence[str] = (ADMIN_GROUP,),
) -> bytes:
    """Return a client certificate (PEM) for the key of ``request`` (PEM).

    The subject has ``groups``, and the certificate is valid for ``hours``. Only the key and the single common name of
    the request are used. The common name must be ``name`` if ``name`` is given. Raises ADMIN_REQUEST_INVALID, and the
    errors of `require_subject`.
    """
    wanted = _parsed(request)
    names = wanted.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    if len(names) != 1 or str(names[0].value).startswith("system:"):
        raise _invalid("expected one common name that does not begin with system:")
    if name is not None and names[0].value != name:
        raise _invalid(f"expected a request of {name}, got one of {str(names[0].value)[:100]!r}")
    require_subject(_SITE_ADMIN if name is None else name, groups, hours)
    issuer = x509.load_pem_x509_certificate(read_bytes(paths.ca, limit=_LIMIT))
    key: Any = serialization.load_pem_private_key(read_bytes(paths.ca.with_suffix(".key"), limit=_LIMIT), password=None)
    now = clock.now()
    organizations = [x509.NameAttribute(x509.oid.NameOID.ORGANIZATION_NAME, one) for one in groups]
    subject = x509.Name([*organizations, names[0]])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(wanted.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(hours=hours))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    pem: bytes = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return pem


def _parsed(request: bytes) -> x509.CertificateSigningRequest:
    try:
        wanted = x509.load_pem_x509_csr(request)
    except unreadable() as error:
        raise _invalid("expected a certificate request in PEM") from error
    try:
        signed, key = wanted.is_signature_valid, wanted.public_key()
    except unreadable() as error:
        raise _invalid("expected a request that is signed by its own key") from error
    if not signed:
        raise _invalid("expected a request that is signed by its own key")
    if not is_accepted(KeyUse.ADMIN, key):
        raise _invalid(f"expected a key of {KeyUse.ADMIN.wanted}, got {kind_of(key)}")
    return wanted


def _refused(what: str, rule: str, got: str) -> KubeadmError:
    return KubeadmError(
        f"expected {what} of 1 to 64 letters, digits and . _ : @ + - that {rule}, got {got[:100]!r}",
        reason=Reason.OPTION_INVALID,
    )


def _invalid(message: str) -> KubeadmError:
    return KubeadmError(message, reason=Reason.ADMIN_REQUEST_INVALID)
