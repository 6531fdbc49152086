# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MakeCredential in software (part 1, 24): a secret that only one EK opens, and only for one AK."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .kdf import KEY_SIZE, cfb_encrypt, kdf_a, share_secret
from .marshal import Reader, malformed, sized, u16
from .templates import EK_ECC, EK_RSA, matches

if TYPE_CHECKING:
    from ..system import Random
    from .structures import Public

_MAX_SECRET = 32
_NAME_SIZE = 34


@dataclass(frozen=True, slots=True)
class Credential:
    """What ActivateCredential takes: TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET, both with their size in front."""

    id_object: bytes
    encrypted_secret: bytes

    def verify_form(self) -> None:
        """Refuse with TPM_MALFORMED what is not exactly one sized field each."""
        for data, what in ((self.id_object, "TPM2B_ID_OBJECT"), (self.encrypted_secret, "TPM2B_ENCRYPTED_SECRET")):
            reader = Reader(data, what)
            reader.sized(c.MAX_BUFFER)
            reader.end()


def verify_endorsement_key(public: Public) -> None:
    """Refuse with TPM_EK_UNSUPPORTED every public area but those of templates L-1 and L-2."""
    if not (matches(public, EK_RSA) or matches(public, EK_ECC)):
        raise TpmError(
            "expected an endorsement key of template L-1 (RSA-2048) or L-2 (ECC P-256), "
            f"got type {public.type:#06x} with attributes {public.attributes:#010x}",
            reason=Reason.TPM_EK_UNSUPPORTED,
        )


def make_credential(ek: Public, ak_name: bytes, secret: bytes, random: Random) -> Credential:
    """Return ``secret`` (1 to 32 bytes) such that only the TPM with ``ek`` can open it, and only if it holds the AK.

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
