# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A peer's certificate with evidence in it."""

from __future__ import annotations

from datetime import UTC, datetime

from ansible_collections.attested.kubernetes.plugins.module_utils._deps.crypto import x509
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import (
    EVIDENCE_OID,
    make_certificate,
    new_key,
    open_certificate,
)
from cryptography.hazmat.primitives import serialization

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def seeds() -> list[bytes]:
    made = make_certificate(new_key(), oid=EVIDENCE_OID, evidence=b"evidence", now=NOW)
    return [made.public_bytes(serialization.Encoding.DER)]


def one_input(data: bytes) -> None:
    try:
        certificate = x509.load_der_x509_certificate(data)
    except (ValueError, x509.InvalidVersion):
        return  # the TLS library hands on what it could parse itself
    open_certificate((certificate,), oid=EVIDENCE_OID, now=NOW)
