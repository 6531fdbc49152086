# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse certificates and verify a renewed certificate against the old one.

The functions take bytes and read no files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._deps.crypto import exceptions, serialization, unreadable, x509
from ..errors import KubeadmError
from ..reasons import Reason
from .credential import KubeletCredential, embedded_credential

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from .certificate_table import Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One certificate of the table: its serial number (hex), its validity, and that of its CA."""

    certificate: Certificate
    serial: str
    begins: datetime
    ends: datetime
    authority_begins: datetime
    authority_ends: datetime

    @property
    def until(self) -> datetime:
        """The end of its use: kubeadm signs certificates that outlive their CA, and clients refuse them then."""
        return min(self.ends, self.authority_ends)


def parse_leaf(certificate: Certificate, pem: bytes, authority: bytes) -> Leaf:
    """Parse the first certificate of ``pem`` and the PEM of its CA; raises one of `unreadable`."""
    leaf = x509.load_pem_x509_certificate(pem)
    issuer = x509.load_pem_x509_certificate(authority)
    return Leaf(
        certificate=certificate,
        serial=f"{leaf.serial_number:x}",
        begins=leaf.not_valid_before_utc,
        ends=leaf.not_valid_after_utc,
        authority_begins=issuer.not_valid_before_utc,
        authority_ends=issuer.not_valid_after_utc,
    )


def split_kubeconfig(data: bytes) -> KubeletCredential:
    """Return certificate and key (PEM) from a kubeconfig.

    Raises `ValueError` if the kubeconfig names files.
    """
    try:
        found = embedded_credential(data)
    except KubeadmError as error:
        raise ValueError(error.message) from error
    if found is None:
        raise ValueError("expected a kubeconfig with embedded certificate and key, found one that names files")
    return found


def verify_renewed(name: str, *, before: bytes, after: KubeletCredential, authority: bytes, now: datetime) -> str:
    """Verify the renewed certificate ``name`` and return its serial number (hex).

    ``before`` and ``authority`` are PEM. Raises CONTROL_PLANE_RENEWAL_FAILED with every difference:

    1. It is another certificate (kubeadm exits with 0 even if it renewed nothing).
    2. Its subject, alternative names and usages are those of the old certificate.
    3. The CA signed it.
    4. It is valid now.
    5. The key file holds its key.
    """
    try:
        old, new = (x509.load_pem_x509_certificate(pem) for pem in (before, after.certificate))
        issuer = x509.load_pem_x509_certificate(authority)
        key = serialization.load_pem_private_key(after.key, password=None)
    except unreadable() as error:
        raise _failed(name, "expected a certificate and a key in PEM") from error
    problems = [
        *(["expected another certificate, found the same"] if new.serial_number == old.serial_number else []),  # 1
        *_identity_differences(old, new),  # 2
        *(["expected it signed by its CA, it is not"] if not _is_signed_by(new, issuer) else []),  # 3
        *([] if new.not_valid_before_utc <= now < new.not_valid_after_utc else ["expected it to be valid now"]),  # 4
        *([] if _spki(new.public_key()) == _spki(key.public_key()) else ["expected its own key in the key file"]),  # 5
    ]
    if problems:
        raise _failed(name, "; ".join(problems))
    return f"{new.serial_number:x}"


def _identity_differences(old: Any, new: Any) -> Iterator[str]:
    if new.subject != old.subject:
        yield f"expected the subject {old.subject.rfc4514_string()}, got {new.subject.rfc4514_string()}"
    for label, kind in (("alternative names", x509.SubjectAlternativeName), ("usages", x509.ExtendedKeyUsage)):
        expected, found = _values(old, kind), _values(new, kind)
        if expected != found:
            yield f"expected the {label} {sorted(expected)}, got {sorted(found)}"


def _values(certificate: Any, kind: Any) -> frozenset[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(getattr(one, "value", getattr(one, "dotted_string", one))) for one in extension)


def _is_signed_by(certificate: Any, issuer: Any) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except unreadable(exceptions.InvalidSignature):
        return False
    return True


def _spki(public: Any) -> bytes:
    encoded: bytes = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return encoded


def _failed(name: str, why: str) -> KubeadmError:
    return KubeadmError(f"certificate {name} after its renewal: {why}", reason=Reason.CONTROL_PLANE_RENEWAL_FAILED)
