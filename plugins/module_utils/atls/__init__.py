# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attested TLS: what binds evidence to one connection, one request and one key.

Re-exported here is only the pure binding, so that the verification of evidence loads neither pyOpenSSL nor grpcio;
the relay, its client and their contexts are imported from their own files. Private to the collection.
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

__all__ = [
    "MINIMUM_PROTOCOL_VERSION",
    "PROTOCOL_VERSION",
    "BindingInput",
    "Purpose",
    "binding_digest",
    "challenge_proof",
    "doorkeeper_digest",
    "label",
    "length_prefixed",
]
