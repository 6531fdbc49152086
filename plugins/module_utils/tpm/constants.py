# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers of the TPM 2.0 Library Specification (part 2) and of the TCG EK Credential Profile that are used here."""

from __future__ import annotations

from typing import Final

# Algorithms (part 2, 6.3).
ALG_RSA: Final = 0x0001
ALG_SHA1: Final = 0x0004
ALG_HMAC: Final = 0x0005
ALG_AES: Final = 0x0006
ALG_KEYEDHASH: Final = 0x0008
ALG_SHA256: Final = 0x000B
ALG_SHA384: Final = 0x000C
ALG_SHA512: Final = 0x000D
ALG_NULL: Final = 0x0010
ALG_RSASSA: Final = 0x0014
ALG_RSAPSS: Final = 0x0016
ALG_ECDSA: Final = 0x0018
ALG_ECC: Final = 0x0023
ALG_CFB: Final = 0x0043

DIGEST_SIZES: Final = {ALG_SHA1: 20, ALG_SHA256: 32, ALG_SHA384: 48, ALG_SHA512: 64}
"""The digest size in bytes of each hash algorithm of register banks."""

HASH_NAMES: Final = {ALG_SHA1: "sha1", ALG_SHA256: "sha256", ALG_SHA384: "sha384", ALG_SHA512: "sha512"}
"""The names of the hash algorithms in hashlib and tpm2-tools."""

# Curves (part 2, 6.4).
CURVE_P256: Final = 0x0003
CURVE_P384: Final = 0x0004

# Structure tags (part 2, 6.9) and the magic number of structures that a TPM signs about itself (6.2).
TAG_NO_SESSIONS: Final = 0x8001
TAG_SESSIONS: Final = 0x8002
TAG_ATTEST_QUOTE: Final = 0x8018
GENERATED_MAGIC: Final = 0xFF544347

# Commands (part 2, 6.5.2).
CC_EVICT_CONTROL: Final = 0x00000120
CC_NV_DEFINE_SPACE: Final = 0x0000012A
CC_CREATE_PRIMARY: Final = 0x00000131
CC_NV_INCREMENT: Final = 0x00000134
CC_PCR_EVENT: Final = 0x0000013C
CC_ACTIVATE_CREDENTIAL: Final = 0x00000147
CC_NV_READ: Final = 0x0000014E
CC_POLICY_SECRET: Final = 0x00000151
CC_CREATE: Final = 0x00000153
CC_LOAD: Final = 0x00000157
CC_QUOTE: Final = 0x00000158
CC_UNSEAL: Final = 0x0000015E
CC_FLUSH_CONTEXT: Final = 0x00000165
CC_NV_READ_PUBLIC: Final = 0x00000169
CC_READ_PUBLIC: Final = 0x00000173
CC_START_AUTH_SESSION: Final = 0x00000176
CC_GET_CAPABILITY: Final = 0x0000017A
CC_PCR_READ: Final = 0x0000017E
CC_POLICY_PCR: Final = 0x0000017F
CC_PCR_EXTEND: Final = 0x00000182

# Handles (part 2, 7).
RH_OWNER: Final = 0x40000001
RH_NULL: Final = 0x40000007
RS_PASSWORD: Final = 0x40000009
RH_ENDORSEMENT: Final = 0x4000000B
FIRST_NV: Final = 0x01000000
FIRST_SESSION: Final = 0x02000000
FIRST_TRANSIENT: Final = 0x80000000
FIRST_PERSISTENT: Final = 0x81000000

# Capabilities and properties (part 2, 6.12 and 6.13).
CAP_HANDLES: Final = 0x00000001
CAP_PCRS: Final = 0x00000005
CAP_TPM_PROPERTIES: Final = 0x00000006
PT_MANUFACTURER: Final = 0x00000105
PT_VENDOR_STRING_1: Final = 0x00000106
PT_VENDOR_STRING_4: Final = 0x00000109
PT_FIRMWARE_VERSION_1: Final = 0x0000010B
PT_FIRMWARE_VERSION_2: Final = 0x0000010C
PT_NV_BUFFER_MAX: Final = 0x0000012C
PT_PERMANENT: Final = 0x00000200
PT_STARTUP_CLEAR: Final = 0x00000201
PERMANENT_OWNER_AUTH_SET: Final = 1 << 0
PERMANENT_ENDORSEMENT_AUTH_SET: Final = 1 << 1
PERMANENT_IN_LOCKOUT: Final = 1 << 9
STARTUP_OWNER_ENABLED: Final = 1 << 1
STARTUP_ENDORSEMENT_ENABLED: Final = 1 << 2

# Object attributes (part 2, 8.3).
ATTR_FIXED_TPM: Final = 1 << 1
ATTR_FIXED_PARENT: Final = 1 << 4
ATTR_SENSITIVE_DATA_ORIGIN: Final = 1 << 5
ATTR_USER_WITH_AUTH: Final = 1 << 6
ATTR_ADMIN_WITH_POLICY: Final = 1 << 7
ATTR_NO_DA: Final = 1 << 10
ATTR_RESTRICTED: Final = 1 << 16
ATTR_DECRYPT: Final = 1 << 17
ATTR_SIGN: Final = 1 << 18

# Sessions (part 2, 6.11 and 8.4).
SESSION_HMAC: Final = 0x00
SESSION_POLICY: Final = 0x01
SESSION_CONTINUE: Final = 1 << 0
SESSION_DECRYPT: Final = 1 << 5
SESSION_ENCRYPT: Final = 1 << 6

# NV index attributes (part 2, 13.4).
NV_OWNER_WRITE: Final = 1 << 1
NV_TYPE_COUNTER: Final = 1 << 4
NV_OWNER_READ: Final = 1 << 17
NV_AUTH_READ: Final = 1 << 18
NV_NO_DA: Final = 1 << 25
NV_WRITTEN: Final = 1 << 29

NV_POLICY_COUNTER: Final = 0x01A77E57
"""Our index in the owner's range (Registry of Reserved TPM 2.0 Handles, 2.2.2): counts changes of the policy record."""
NV_DISK_COUNTER: Final = 0x01A77E58
"""The next index: counts the unlocks of the state disk."""

# The NV indices of the manufacturer's EK certificates (TCG EK Credential Profile 2.5, 2.2.1.4 and 2.2.1.5).
NV_EK_RSA_2048_L1: Final = 0x01C00002
NV_EK_ECC_P256_L2: Final = 0x01C0000A
NV_EK_CERTIFICATES: Final = {NV_EK_RSA_2048_L1: "RSA-2048 (L-1)", NV_EK_ECC_P256_L2: "ECC P-256 (L-2)"}
NV_EK_OTHER: Final = {
    0x01C00012: "RSA-2048 (H-1)",
    0x01C00014: "ECC P-256 (H-2)",
    0x01C00016: "ECC P-384 (H-3)",
    0x01C00018: "ECC P-521 (H-4)",
    0x01C0001A: "ECC SM2 (H-5)",
    0x01C0001C: "RSA-3072 (H-6)",
    0x01C0001E: "RSA-4096 (H-7)",
}
NV_EK_FIRST: Final = 0x01C00000
NV_EK_CHAIN_FIRST: Final = 0x01C00100
NV_EK_CHAIN_LAST: Final = 0x01C001FF

# The handles of `persist_keys`, all in the owner's range (TCG Registry of Reserved Handles, 2.3.1).
PERSISTENT_EK_RSA: Final = 0x81010001
PERSISTENT_EK_ECC: Final = 0x81010002
PERSISTENT_AK: Final = 0x81018A01

# Limits of data from a TPM or a peer, checked before it is parsed.
MAX_COMMAND: Final = 4096
MAX_BUFFER: Final = 2048
MAX_DIGEST: Final = 64
MAX_NV: Final = 16384
MAX_SEALED: Final = 128
MAX_EVENT: Final = 1024
MAX_SELECTIONS: Final = 16
PCR_COUNT: Final = 24
