# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attested TLS: evidence bound to one connection, one request and one key.

Here are the pure parts: binding, pinned join CA, and what others implement (`Issuer`, `Validator`). They load neither
pyOpenSSL nor grpcio, because the verification of evidence imports them. The relay is imported from `atls.service`, the
node's side from `atls.client`. Private to the collection.
"""

from __future__ import annotations

from .binding import (
    MINIMUM_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    BindingInput,
    Purpose,
    binding_digest,
    challenge_proof,
    doorkeeper_digest,
    label,
    length_prefixed,
)
from .pins import JoinCaPins, join_service_name
from .seams import EVIDENCE_OID, MAX_EVIDENCE_BYTES, NONCE_BYTES, Issuer, Observer, Validator

__all__ = [
    "EVIDENCE_OID",
    "MAX_EVIDENCE_BYTES",
    "MINIMUM_PROTOCOL_VERSION",
    "NONCE_BYTES",
    "PROTOCOL_VERSION",
    "BindingInput",
    "Issuer",
    "JoinCaPins",
    "Observer",
    "Purpose",
    "Validator",
    "binding_digest",
    "challenge_proof",
    "doorkeeper_digest",
    "join_service_name",
    "label",
    "length_prefixed",
]
