# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's certificate: over a key that never left the admin's machine, short, not in system:masters."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._deps.crypto import hashes, serialization, unreadable, x509
from ..core.files import read_bytes
from ..errors import KubeadmError
from ..key_kinds import KeyUse, is_accepted, kind_of
from ..reasons import Reason

if TYPE_CHECKING:
    from ..core.host import Clock
    from .spec import KubernetesPaths

ADMIN_GROUP = "kubeadm:cluster-admins"
"""kubeadm binds this group to cluster-admin; unlike system:masters the binding can be taken away."""

_BACKDATED = timedelta(minutes=5)
_LIMIT = 1 << 16


def issue_admin_certificate(request: bytes, *, paths: KubernetesPaths, clock: Clock, hours: int) -> bytes:
    """Return a client certificate (PEM) over the key of ``request`` (PEM), good for ``hours``.

    Only the common name is taken from the request; raises ADMIN_REQUEST_INVALID.
    """
    wanted = _parsed(request)
    names = wanted.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    if len(names) != 1 or str(names[0].value).startswith("system:"):
        raise _invalid("expected one common name that does not begin with system:")
    issuer = x509.load_pem_x509_certificate(read_bytes(paths.ca, limit=_LIMIT))
    key: Any = serialization.load_pem_private_key(read_bytes(paths.ca.with_suffix(".key"), limit=_LIMIT), password=None)
    now = clock.now()
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.ORGANIZATION_NAME, ADMIN_GROUP), names[0]])
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
    except ValueError as error:
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


def _invalid(message: str) -> KubeadmError:
    return KubeadmError(message, reason=Reason.ADMIN_REQUEST_INVALID)
