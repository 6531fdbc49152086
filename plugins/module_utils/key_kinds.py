# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accepted kinds of keys for each use of a key: one table for the whole collection.

RSA below 2048 bits can be broken by a state (NIST SP 800-131A Rev. 2 disallows it). Above 4096 or 8192 bits a signature
takes more time than an unknown peer may use. A long key with a small public exponent is not stronger.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_RSA_BITS = 2048
_MIN_EXPONENT = 65_537
_CURVES = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
_ED25519 = "Ed25519"


class KeyUse(Enum):
    """The use of a key."""

    ADMIN = "an administrator's certificate"
    ADMIN_PROOF = "an admin's proof to a new machine"
    ATTESTATION = "an attestation key of a TPM"
    CLUSTER_AUTHORITY = "a CA of the cluster, or the key of its service accounts"
    ENDORSEMENT = "an endorsement key that is enrolled; that of a quote must fit a template, which is stricter"
    ENDORSEMENT_AUTHORITY = "a CA that certifies endorsement keys"
    JOIN_CA = "the join CA, which nodes pin"
    KUBELET = "a certificate of a kubelet"
    POLICY = "the signature of the policy"
    SOURCE = "a commit of the site's repository"
    TLS_PEER = "a server of the collection, or an attested peer"

    @property
    def wanted(self) -> str:
        """Return the accepted kinds in words, for a message."""
        curves, bits = ACCEPTED[self]
        return " or ".join([*curves, *([f"RSA of {MIN_RSA_BITS} to {bits} bits"] if bits else [])])


ACCEPTED: Mapping[KeyUse, tuple[tuple[str, ...], int]] = {
    KeyUse.ADMIN: (("P-256", "P-384"), 4096),
    KeyUse.ADMIN_PROOF: (("P-256",), 0),
    KeyUse.ATTESTATION: (("P-256", "P-384"), 4096),
    KeyUse.CLUSTER_AUTHORITY: ((_ED25519, "P-256", "P-384", "P-521"), 8192),
    KeyUse.ENDORSEMENT: (("P-256", "P-384"), 4096),
    KeyUse.ENDORSEMENT_AUTHORITY: (("P-256", "P-384", "P-521"), 8192),
    KeyUse.JOIN_CA: ((_ED25519,), 0),
    KeyUse.KUBELET: ((_ED25519, "P-256"), 4096),
    KeyUse.POLICY: ((_ED25519,), 0),
    KeyUse.SOURCE: ((_ED25519, "P-256"), 0),
    KeyUse.TLS_PEER: (("P-256",), 0),
}
"""The accepted curves, and the maximum bits of RSA keys (0: RSA is not accepted)."""


def is_accepted(use: KeyUse, key: Any) -> bool:
    """Return whether a public key of the library `cryptography` is accepted for ``use``."""
    curves, bits = ACCEPTED[use]
    if hasattr(key, "curve"):
        return _CURVES.get(key.curve.name) in curves
    if type(key).__name__ == "RSAPublicKey":
        return bool(MIN_RSA_BITS <= key.key_size <= bits and key.public_numbers().e >= _MIN_EXPONENT)
    return type(key).__name__ == "Ed25519PublicKey" and _ED25519 in curves


def kind_of(key: Any) -> str:
    """Return a public key's kind in words, for a message."""
    if hasattr(key, "curve"):
        return _CURVES.get(key.curve.name, str(key.curve.name))
    if type(key).__name__ == "RSAPublicKey":
        return f"RSA of {key.key_size} bits and exponent {key.public_numbers().e}"[:80]
    return type(key).__name__.removesuffix("PublicKey")
