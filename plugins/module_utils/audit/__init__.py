# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit log: one record a decision, or of many refusals, chained by hashes, its head signed by a TPM.

Written by the key service, read by ``attested audit verify``. Private to the collection.
"""

from __future__ import annotations

from .chain import Head, Rotation, digest_of, render
from .log import AuditLog, AuditPlace
from .signer import HeadSigner, verify_head
from .trail import REFUSALS, AuditTrail
from .verify import AuditReport, heads_of, verify_audit, verify_refusals

__all__ = [
    "REFUSALS",
    "AuditLog",
    "AuditPlace",
    "AuditReport",
    "AuditTrail",
    "Head",
    "HeadSigner",
    "Rotation",
    "digest_of",
    "heads_of",
    "render",
    "verify_audit",
    "verify_head",
    "verify_refusals",
]
