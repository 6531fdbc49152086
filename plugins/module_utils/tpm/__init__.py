# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TPM 2.0 client in pure Python, without any policy. What is not named here is private to this package."""

from __future__ import annotations

from .attest import Attest, ClockInfo, Signature
from .authorization import HIERARCHY_NAMES, MAX_AUTH_BYTES, HeldAuths, in_memory
from .client import Quote, Tpm, TpmProperties, open_tpm
from .commands import LoadedKey
from .constants import (
    ALG_ECC,
    ALG_ECDSA,
    ALG_RSA,
    ALG_RSAPSS,
    ALG_RSASSA,
    ALG_SHA1,
    ALG_SHA256,
    ALG_SHA384,
    ALG_SHA512,
    ATTR_DECRYPT,
    ATTR_FIXED_PARENT,
    ATTR_FIXED_TPM,
    ATTR_RESTRICTED,
    ATTR_SENSITIVE_DATA_ORIGIN,
    ATTR_SIGN,
    CURVE_P256,
    DIGEST_SIZES,
    GENERATED_MAGIC,
    NV_DISK_COUNTER,
    NV_EK_CERTIFICATES,
    NV_EK_OTHER,
    PCR_COUNT,
    RH_ENDORSEMENT,
    RH_OWNER,
    TAG_ATTEST_QUOTE,
)
from .credential import Credential, make_credential, verify_endorsement_key
from .keys import (
    Persistence,
    load_attestation_key,
    load_endorsement_key,
    load_second_endorsement_key,
    persist_keys,
    plan_persistence,
)
from .nv import NvCounter
from .responses import ResponseError
from .sealed import SealedObject, seal, unseal
from .structures import EccParameters, EccPoint, PcrSelection, Public, RsaParameters, Scheme, Symmetric

__all__ = [
    "ALG_ECC",
    "ALG_ECDSA",
    "ALG_RSA",
    "ALG_RSAPSS",
    "ALG_RSASSA",
    "ALG_SHA1",
    "ALG_SHA256",
    "ALG_SHA384",
    "ALG_SHA512",
    "ATTR_DECRYPT",
    "ATTR_FIXED_PARENT",
    "ATTR_FIXED_TPM",
    "ATTR_RESTRICTED",
    "ATTR_SENSITIVE_DATA_ORIGIN",
    "ATTR_SIGN",
    "CURVE_P256",
    "DIGEST_SIZES",
    "GENERATED_MAGIC",
    "HIERARCHY_NAMES",
    "MAX_AUTH_BYTES",
    "NV_DISK_COUNTER",
    "NV_EK_CERTIFICATES",
    "NV_EK_OTHER",
    "PCR_COUNT",
    "RH_ENDORSEMENT",
    "RH_OWNER",
    "TAG_ATTEST_QUOTE",
    "Attest",
    "ClockInfo",
    "Credential",
    "EccParameters",
    "EccPoint",
    "HeldAuths",
    "LoadedKey",
    "NvCounter",
    "PcrSelection",
    "Persistence",
    "Public",
    "Quote",
    "ResponseError",
    "RsaParameters",
    "Scheme",
    "SealedObject",
    "Signature",
    "Symmetric",
    "Tpm",
    "TpmProperties",
    "in_memory",
    "load_attestation_key",
    "load_endorsement_key",
    "load_second_endorsement_key",
    "make_credential",
    "open_tpm",
    "persist_keys",
    "plan_persistence",
    "seal",
    "unseal",
    "verify_endorsement_key",
]
