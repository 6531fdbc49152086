# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Well-formed PEM private keys that a service cannot load without a person."""

from __future__ import annotations

from base64 import encodebytes

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

_ED25519 = b"\x06\x03\x2b\x65\x70"
_NOBODYS = b"\x06\x03\x2b\x65\x01"


def encrypted_key() -> bytes:
    """Return a key that needs a password."""
    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"a password"),
    )


def unknown_key() -> bytes:
    """Return a key with an unknown algorithm."""
    der = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    text = encodebytes(der.replace(_ED25519, _NOBODYS))
    return b"-----BEGIN PRIVATE KEY-----\n" + text + b"-----END PRIVATE KEY-----\n"
