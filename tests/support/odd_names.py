# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates and requests with a name that the library parses only on access, and then fails."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

PLAIN = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "\x00odd")])
_UTF8, _BITS = b"\x0c\x04\x00odd", b"\x03\x04\x00odd"


def odd(der: bytes) -> bytes:
    """Replace the text of `PLAIN` by a bit string everywhere; signatures become invalid."""
    assert _UTF8 in der
    return der.replace(_UTF8, _BITS)


def odd_certificate(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return one in DER with an invalid subject and issuer."""
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(PLAIN).issuer_name(PLAIN).public_key(key.public_key())
    dated = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
    return odd(dated.serial_number(7).sign(key, hashes.SHA256()).public_bytes(Encoding.DER))


ODD_DIRECTORY = x509.UnrecognizedExtension(
    x509.oid.ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
    odd(x509.SubjectAlternativeName([x509.DirectoryName(PLAIN)]).public_bytes()),
)
"""An extension of alternative names with one that cannot be parsed."""
