# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The templates (public areas) of the keys EK (L-1, L-2), SRK and AK and of sealed data; MakeCredential.

Sources: TCG EK Credential Profile 2.5, B.3.3 and B.3.4; TCG TPM v2.0 Provisioning Guidance 1.0, 7.5.1.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .commands import KEY_SIZE, cfb_encrypt, kdf_a, share_secret
from .structures import (
    DataParameters,
    EccParameters,
    EccPoint,
    Public,
    Reader,
    RsaParameters,
    Scheme,
    Symmetric,
    malformed,
    sized,
    u16,
)

if TYPE_CHECKING:
    from ..core.host import Random


EK_POLICY = bytes.fromhex("837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa")
"""PolicySecret(endorsement hierarchy) with SHA-256: the policy of both EK templates."""

_FIXED = c.ATTR_FIXED_TPM | c.ATTR_FIXED_PARENT
_PRIMARY = _FIXED | c.ATTR_SENSITIVE_DATA_ORIGIN | c.ATTR_RESTRICTED
_EK_ATTRIBUTES = _PRIMARY | c.ATTR_ADMIN_WITH_POLICY | c.ATTR_DECRYPT
_AES_128_CFB = Symmetric(alg=c.ALG_AES, key_bits=128, mode=c.ALG_CFB)
_P256_STORAGE = EccParameters(symmetric=_AES_128_CFB, scheme=Scheme(), curve=c.CURVE_P256)

EK_RSA = Public(
    type=c.ALG_RSA,
    name_alg=c.ALG_SHA256,
    attributes=_EK_ATTRIBUTES,
    auth_policy=EK_POLICY,
    parameters=RsaParameters(symmetric=_AES_128_CFB, scheme=Scheme(), key_bits=2048, exponent=0),
    unique=bytes(256),
)
"""Template L-1: RSA-2048."""

EK_ECC = Public(
    type=c.ALG_ECC,
    name_alg=c.ALG_SHA256,
    attributes=_EK_ATTRIBUTES,
    auth_policy=EK_POLICY,
    parameters=_P256_STORAGE,
    unique=EccPoint(bytes(32), bytes(32)),
)
"""Template L-2: ECC P-256."""

SRK = Public(
    type=c.ALG_ECC,
    name_alg=c.ALG_SHA256,
    attributes=_PRIMARY | c.ATTR_USER_WITH_AUTH | c.ATTR_NO_DA | c.ATTR_DECRYPT,
    auth_policy=b"",
    parameters=_P256_STORAGE,
    unique=EccPoint(bytes(32), bytes(32)),
)
"""The ECC storage root key, primary of the owner hierarchy."""

AK = Public(
    type=c.ALG_ECC,
    name_alg=c.ALG_SHA256,
    attributes=_PRIMARY | c.ATTR_USER_WITH_AUTH | c.ATTR_NO_DA | c.ATTR_SIGN,
    auth_policy=b"",
    parameters=EccParameters(symmetric=Symmetric(), scheme=Scheme(c.ALG_ECDSA, c.ALG_SHA256), curve=c.CURVE_P256),
    unique=EccPoint(b"", b""),
)
"""The attestation key: restricted, so it signs only structures of the TPM itself; ECDSA with SHA-256."""


def sealed_template(policy: bytes) -> Public:
    """Return the template of sealed data that only ``policy`` opens; it has no password, so no dictionary lockout."""
    return Public(
        type=c.ALG_KEYEDHASH,
        name_alg=c.ALG_SHA256,
        attributes=_FIXED | c.ATTR_ADMIN_WITH_POLICY | c.ATTR_NO_DA,
        auth_policy=policy,
        parameters=DataParameters(),
        unique=b"",
    )


def matches(public: Public, template: Public) -> bool:
    """Whether ``public`` is a key of ``template``: equal except for the key itself."""
    return public.as_template() == template.as_template()


# MakeCredential in software (part 1, 24): a secret that only one EK can decrypt, and only for one AK.

_MAX_SECRET = 32
_NAME_SIZE = 34


@dataclass(frozen=True, slots=True)
class Credential:
    """The input of ActivateCredential: TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET, both with their size."""

    id_object: bytes
    encrypted_secret: bytes

    def verify_form(self) -> None:
        """Raise TPM_MALFORMED unless each field is exactly one TPM2B."""
        for data, what in ((self.id_object, "TPM2B_ID_OBJECT"), (self.encrypted_secret, "TPM2B_ENCRYPTED_SECRET")):
            reader = Reader(data, what)
            reader.sized(c.MAX_BUFFER)
            reader.end()


def verify_endorsement_key(public: Public) -> None:
    """Raise TPM_EK_UNSUPPORTED unless the public area is of template L-1 or L-2."""
    if not (matches(public, EK_RSA) or matches(public, EK_ECC)):
        raise TpmError(
            "expected an endorsement key of template L-1 (RSA-2048) or L-2 (ECC P-256), "
            f"got type {public.type:#06x} with attributes {public.attributes:#010x}",
            reason=Reason.TPM_EK_UNSUPPORTED,
        )


def make_credential(ek: Public, ak_name: bytes, secret: bytes, random: Random) -> Credential:
    """Return ``secret`` (1 to 32 bytes) encrypted so that only the TPM with ``ek`` can open it, if it has the AK too.

    ``ak_name`` is the Name of the AK, which binds its whole public area. Raises TPM_EK_UNSUPPORTED, TPM_MALFORMED.
    """
    verify_endorsement_key(ek)
    if not 0 < len(secret) <= _MAX_SECRET:
        raise malformed(f"a secret of 1 to {_MAX_SECRET} bytes", f"{len(secret)}")
    if len(ak_name) != _NAME_SIZE or not ak_name.startswith(u16(c.ALG_SHA256)):
        raise malformed("a Name made with SHA-256", f"{len(ak_name)} bytes")
    seed, encrypted = share_secret(ek, b"IDENTITY", random)
    storage_key = kdf_a(seed, b"STORAGE", context=ak_name, size=KEY_SIZE)
    identity = cfb_encrypt(storage_key, bytes(KEY_SIZE), sized(secret))
    integrity = hmac.digest(kdf_a(seed, b"INTEGRITY"), identity + ak_name, "sha256")
    return Credential(id_object=sized(sized(integrity) + identity), encrypted_secret=sized(encrypted))
