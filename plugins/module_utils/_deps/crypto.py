# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`cryptography`, guarded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import optional

if TYPE_CHECKING:
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import asymmetric, ciphers, hashes, hpke, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, x25519
    from cryptography.hazmat.primitives.asymmetric import utils as asymmetric_utils
    from cryptography.hazmat.primitives.ciphers import aead, algorithms, modes
    from cryptography.hazmat.primitives.kdf import argon2, hkdf
    from cryptography.x509 import verification

    # An alias is only exported when it is named here.
    __all__ = ["asymmetric_utils"]
else:
    _PRIMITIVES = "cryptography.hazmat.primitives"
    exceptions = optional("cryptography.exceptions")
    x509 = optional("cryptography.x509")
    asymmetric = optional(f"{_PRIMITIVES}.asymmetric")
    ciphers = optional(f"{_PRIMITIVES}.ciphers")
    hashes = optional(f"{_PRIMITIVES}.hashes")
    hpke = optional(f"{_PRIMITIVES}.hpke")
    serialization = optional(f"{_PRIMITIVES}.serialization")
    ec = optional(f"{_PRIMITIVES}.asymmetric.ec")
    ed25519 = optional(f"{_PRIMITIVES}.asymmetric.ed25519")
    padding = optional(f"{_PRIMITIVES}.asymmetric.padding")
    rsa = optional(f"{_PRIMITIVES}.asymmetric.rsa")
    asymmetric_utils = optional(f"{_PRIMITIVES}.asymmetric.utils")
    x25519 = optional(f"{_PRIMITIVES}.asymmetric.x25519")
    aead = optional(f"{_PRIMITIVES}.ciphers.aead")
    algorithms = optional(f"{_PRIMITIVES}.ciphers.algorithms")
    modes = optional(f"{_PRIMITIVES}.ciphers.modes")
    argon2 = optional(f"{_PRIMITIVES}.kdf.argon2")
    hkdf = optional(f"{_PRIMITIVES}.kdf.hkdf")
    verification = optional("cryptography.x509.verification")

__all__ = [
    "aead",
    "algorithms",
    "argon2",
    "asymmetric",
    "asymmetric_utils",
    "ciphers",
    "ec",
    "ed25519",
    "exceptions",
    "hashes",
    "hkdf",
    "hpke",
    "modes",
    "padding",
    "rsa",
    "serialization",
    "unreadable",
    "verification",
    "x509",
    "x25519",
]


def unreadable(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the exceptions of the library for a certificate or a request that it cannot parse, and ``more``.

    The library parses some parts only on access, so a caller must catch these exceptions there too. A TypeError is
    raised, for example, for a name with a misplaced bit string.
    """
    return (
        ValueError,
        TypeError,
        exceptions.UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
        *more,
    )
