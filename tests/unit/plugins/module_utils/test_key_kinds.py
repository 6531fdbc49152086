# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kinds of keys are believed: every kind for every use."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.key_kinds import KeyUse, is_accepted, kind_of
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa, x25519

KEYS: dict[str, Any] = {
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
    "P-256": ec.generate_private_key(ec.SECP256R1()),
    "P-384": ec.generate_private_key(ec.SECP384R1()),
    "P-521": ec.generate_private_key(ec.SECP521R1()),
    "secp256k1": ec.generate_private_key(ec.SECP256K1()),
    "secp224r1": ec.generate_private_key(ec.SECP224R1()),
    "RSA-1024": rsa.generate_private_key(65537, 1024),
    "RSA-2040": rsa.generate_private_key(65537, 2040),
    "RSA-2048": rsa.generate_private_key(65537, 2048),
    "RSA-2048 of exponent 3": rsa.generate_private_key(3, 2048),
    "X25519": x25519.X25519PrivateKey.generate(),
    "Ed448": ed448.Ed448PrivateKey.generate(),
    "DSA": dsa.generate_private_key(2048),
}
BELIEVED = {
    KeyUse.ADMIN: {"P-256", "P-384", "RSA-2048"},
    KeyUse.ADMIN_PROOF: {"P-256"},
    KeyUse.ATTESTATION: {"P-256", "P-384", "RSA-2048"},
    KeyUse.CLUSTER_AUTHORITY: {"Ed25519", "P-256", "P-384", "P-521", "RSA-2048"},
    KeyUse.ENDORSEMENT: {"P-256", "P-384", "RSA-2048"},
    KeyUse.ENDORSEMENT_AUTHORITY: {"P-256", "P-384", "P-521", "RSA-2048"},
    KeyUse.JOIN_CA: {"Ed25519"},
    KeyUse.KUBELET: {"Ed25519", "P-256", "RSA-2048"},
    KeyUse.POLICY: {"Ed25519"},
    KeyUse.SOURCE: {"Ed25519", "P-256"},
    KeyUse.TLS_PEER: {"P-256"},
}


@pytest.mark.parametrize("use", KeyUse)
def test_each_use_takes_its_kinds_and_no_other(use: KeyUse) -> None:
    assert {name for name, key in KEYS.items() if is_accepted(use, key.public_key())} == BELIEVED[use]


class RSAPublicKey:
    """A key of any length, without the minutes that it takes to make one."""

    def __init__(self, bits: int) -> None:
        self.key_size = bits

    def public_numbers(self) -> Any:
        return rsa.RSAPublicNumbers(65537, 1 << (self.key_size - 1))


@pytest.mark.parametrize(
    ("use", "most"),
    [(KeyUse.ATTESTATION, 4096), (KeyUse.KUBELET, 4096), (KeyUse.ADMIN, 4096), (KeyUse.ENDORSEMENT_AUTHORITY, 8192)],
)
def test_a_long_key_has_an_end(use: KeyUse, most: int) -> None:
    assert is_accepted(use, RSAPublicKey(most))
    assert not is_accepted(use, RSAPublicKey(most + 8))
    assert not is_accepted(use, RSAPublicKey(2047))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("P-256", "P-256"),
        ("secp256k1", "secp256k1"),
        ("RSA-1024", "RSA of 1024 bits and exponent 65537"),
        ("Ed25519", "Ed25519"),
    ],
)
def test_a_kind_is_told_in_words(name: str, told: str) -> None:
    assert kind_of(KEYS[name].public_key()) == told
    assert KeyUse.KUBELET.wanted == "Ed25519 or P-256 or RSA of 2048 to 4096 bits"
