# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nonces inside TLS: as server name, and as the common name of the one CA that a server accepts.

Wire form (`reference` Constellation 2.2): standard base64 of 32 bytes, 44 characters.
"""

from __future__ import annotations

import base64
import binascii
from datetime import timedelta
from typing import TYPE_CHECKING

from .._deps.crypto import ec, hashes, x509
from ..errors import TransportError
from ..reasons import Reason
from .seams import NONCE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


def encode_nonce(nonce: bytes) -> str:
    """Return the 44 characters that carry ``nonce``."""
    return base64.b64encode(nonce).decode("ascii")


def decode_nonce(text: str | bytes) -> bytes:
    """Return the 32 bytes behind ``text``; raises `TransportError` NONCE_MALFORMED for any other spelling."""
    try:
        nonce = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _malformed("text that is not base64") from error
    if len(nonce) != NONCE_BYTES:
        raise _malformed(f"{len(nonce)} bytes")
    return nonce


def nonce_authority(nonce: bytes, *, now: datetime) -> x509.Certificate:
    """Return a throw-away certificate whose subject is CN=``nonce``: the only way to put a name in the CA list."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, encode_nonce(nonce))])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )


def decode_authorities(names: Sequence[x509.Name]) -> bytes:
    """Return the nonce of a list of acceptable CAs; raises NONCE_MALFORMED unless it holds exactly one."""
    if len(names) != 1:
        raise _malformed(f"{len(names)} acceptable CAs")
    attributes = list(names[0])
    if len(attributes) != 1 or attributes[0].oid != x509.NameOID.COMMON_NAME:
        raise _malformed("a CA name that is not one common name")
    return decode_nonce(str(attributes[0].value))


def _malformed(got: str) -> TransportError:
    return TransportError(f"expected one nonce of {NONCE_BYTES} bytes, got {got}", reason=Reason.NONCE_MALFORMED)
