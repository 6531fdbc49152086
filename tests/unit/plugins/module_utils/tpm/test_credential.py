# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""credential.py: whom it is for, and for whom it is not made. That a TPM opens it is shown by component tests."""

from __future__ import annotations

import hmac
from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import cfb_decrypt, kdf_a, kdf_e
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import (
    EccPoint,
    Public,
    Reader,
    ecc_key,
    ecc_point,
    sized,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import (
    AK,
    EK_ECC,
    EK_RSA,
    Credential,
    make_credential,
)
from ansible_collections.attested.kubernetes.tests.support.tpm import CountingRandom, public_area, vector
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

NAME = vector("ak-ecc.name")
SECRET = b"s" * 32
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ECC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_EK = replace(EK_RSA, unique=RSA_KEY.public_key().public_numbers().n.to_bytes(256, "big"))
ECC_EK = replace(EK_ECC, unique=ecc_point(ECC_KEY.public_key()))


def _seed(credential: Credential, ek: Public) -> bytes:
    encrypted = credential.encrypted_secret[2:]
    if ek is RSA_EK:
        scheme = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), b"IDENTITY\0")
        return RSA_KEY.decrypt(encrypted, scheme)
    reader = Reader(encrypted, "point")
    point = EccPoint(reader.sized(32), reader.sized(32))
    shared = ECC_KEY.exchange(ec.ECDH(), ecc_key(3, point))
    return kdf_e(shared, b"IDENTITY", context=point.x + ecc_point(ECC_KEY.public_key()).x)


@pytest.mark.parametrize("ek", [pytest.param(RSA_EK, id="RSA-2048"), pytest.param(ECC_EK, id="ECC P-256")])
def test_the_holder_of_the_ek_finds_secret_and_integrity_over_the_name(ek: Public) -> None:
    credential = make_credential(ek, NAME, SECRET, CountingRandom())
    seed = _seed(credential, ek)
    reader = Reader(credential.id_object[2:], "id object")
    integrity, identity = reader.sized(32), reader.rest()
    assert integrity == hmac.digest(kdf_a(seed, b"INTEGRITY"), identity + NAME, "sha256")
    assert cfb_decrypt(kdf_a(seed, b"STORAGE", context=NAME, size=16), bytes(16), identity) == sized(SECRET)


def test_two_credentials_of_one_secret_have_nothing_in_common() -> None:
    one, two = (make_credential(ECC_EK, NAME, SECRET, CountingRandom()) for _unused in range(2))
    assert one.encrypted_secret != two.encrypted_secret
    assert one.id_object != two.id_object


def test_sizes_are_those_of_the_recorded_credential() -> None:
    ours = make_credential(Public.parse(public_area("ek")), NAME, SECRET, CountingRandom())
    assert len(ours.id_object) == len(vector("cred-ak-ecc.tpm2b_id_object"))
    assert len(ours.encrypted_secret) == len(vector("cred-ak-ecc.tpm2b_encrypted_secret"))


UNRESTRICTED = replace(RSA_EK, attributes=RSA_EK.attributes & ~(1 << 16))


@pytest.mark.parametrize(
    ("ek", "name", "secret", "reason"),
    [
        pytest.param(replace(AK, unique=ECC_EK.unique), NAME, SECRET, Reason.TPM_EK_UNSUPPORTED, id="an AK as EK"),
        pytest.param(UNRESTRICTED, NAME, SECRET, Reason.TPM_EK_UNSUPPORTED, id="an EK that decrypts anything"),
        pytest.param(
            replace(RSA_EK, auth_policy=bytes(32)), NAME, SECRET, Reason.TPM_EK_UNSUPPORTED, id="other policy"
        ),
        pytest.param(RSA_EK, NAME[:-1], SECRET, Reason.TPM_MALFORMED, id="a name cut short"),
        pytest.param(RSA_EK, b"\x00\x04" + NAME[2:], SECRET, Reason.TPM_MALFORMED, id="a name of another hash"),
        pytest.param(RSA_EK, NAME, b"", Reason.TPM_MALFORMED, id="no secret"),
        pytest.param(RSA_EK, NAME, bytes(33), Reason.TPM_MALFORMED, id="a secret that does not fit"),
    ],
)
def test_a_credential_is_not_made_for(ek: Public, name: bytes, secret: bytes, reason: Reason) -> None:
    with pytest.raises(TpmError) as caught:
        make_credential(ek, name, secret, CountingRandom())
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    "credential",
    [
        pytest.param(Credential(b"", sized(b"x")), id="an empty id object"),
        pytest.param(Credential(sized(b"x") + b"y", sized(b"x")), id="a byte behind the id object"),
        pytest.param(Credential(sized(b"x"), sized(b"x")[:-1]), id="a secret cut short"),
        pytest.param(Credential(sized(b"x"), sized(bytes(4000))), id="a secret too long"),
    ],
)
def test_what_is_not_one_sized_field_is_refused(credential: Credential) -> None:
    with pytest.raises(TpmError) as caught:
        credential.verify_form()
    assert caught.value.reason is Reason.TPM_MALFORMED
