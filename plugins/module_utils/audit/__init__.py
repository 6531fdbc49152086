# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit log: one record a decision, chained by hashes, its head signed by the control plane's TPM.

Written by the key service, read by ``attested audit verify``. Private to the collection.
"""

from __future__ import annotations

from .chain import Head, digest_of, render
from .log import AuditLog, AuditPlace
from .signer import HeadSigner, verify_head
from .verify import AuditReport, heads_of, verify_audit

__all__ = [
    "AuditLog",
    "AuditPlace",
    "AuditReport",
    "Head",
    "HeadSigner",
    "digest_of",
    "heads_of",
    "render",
    "verify_audit",
    "verify_head",
]
