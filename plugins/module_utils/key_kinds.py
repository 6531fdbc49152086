# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kinds of keys are believed, for every key that decides anything: one table, and nothing but it is asked.

RSA below 2048 bits is broken within reach of a state (NIST SP 800-131A Rev. 2 disallows it); above 4096 or 8192 bits a
signature costs more time than a stranger may take. A key whose exponent is small is no stronger for its length.
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
    """What a key decides."""

    ADMIN = "an administrator's certificate"
    ADMIN_PROOF = "an admin's word to a fresh machine"
    ATTESTATION = "an attestation key of a TPM"
    CLUSTER_AUTHORITY = "a CA of the cluster, or the key of its service accounts"
    ENDORSEMENT = "an endorsement key that is enrolled; a quote's own must fit a template, which is narrower"
    ENDORSEMENT_AUTHORITY = "a CA that certifies endorsement keys"
    JOIN_CA = "the join CA, which nodes pin"
    KUBELET = "a certificate of a kubelet"
    POLICY = "the signature of the policy"
    SOURCE = "a commit of the site's repository"
    TLS_PEER = "a server of ours, or a peer that attests itself"

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
"""The curves, and how many bits a key may have where it may be RSA (0: it may not)."""


def is_accepted(use: KeyUse, key: Any) -> bool:
    """Say whether a public key of the library `cryptography` may be used so."""
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
