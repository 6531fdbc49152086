# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is looked for of a private key: found in every form of it, and nowhere in its public key."""

from __future__ import annotations

import base64

import pytest
from ansible_collections.attested.kubernetes.tests.support.canary import spellings_of_pem
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

PKCS8, TRADITIONAL = PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL
KEYS = {
    "P-256 as kubeadm writes it": (ec.generate_private_key(ec.SECP256R1()), TRADITIONAL),
    "P-256 in PKCS 8": (ec.generate_private_key(ec.SECP256R1()), PKCS8),
    "P-384": (ec.generate_private_key(ec.SECP384R1()), TRADITIONAL),
    "RSA-2048 as kubeadm writes it": (rsa.generate_private_key(65537, 2048), TRADITIONAL),
    "RSA-2048 in PKCS 8": (rsa.generate_private_key(65537, 2048), PKCS8),
    "Ed25519": (ed25519.Ed25519PrivateKey.generate(), PKCS8),
}


@pytest.mark.parametrize("name", KEYS)
def test_every_form_of_the_private_key_is_found_and_none_of_the_public_key(name: str) -> None:
    key, form = KEYS[name]
    pem, der = (key.private_bytes(encoding, form, NoEncryption()) for encoding in (Encoding.PEM, Encoding.DER))
    needles = spellings_of_pem(pem)
    for leak in (pem, der, der.hex().encode(), base64.b64encode(der), base64.b64encode(b"x" + pem)):
        assert [needle for needle in needles if needle in leak]
    for encoding in (Encoding.PEM, Encoding.DER):
        public = key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
        for text in (public, public.hex().encode(), base64.b64encode(public), base64.b64encode(b"x" + public)):
            assert [needle for needle in needles if needle in text] == []


def test_a_key_after_its_certificate_is_found() -> None:
    """As the kubelet keeps them."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    needles = spellings_of_pem(certificate + key.private_bytes(Encoding.PEM, TRADITIONAL, NoEncryption()))
    scalar = key.private_numbers().private_value.to_bytes(32)
    assert scalar in needles
