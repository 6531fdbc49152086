# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variant ``qemu-vtpm``: the attestation document of Constellation's nodes, both ways. Private to the collection.

Theirs is verified only where the caller's policy says `insecure_constellation_peer`; ours is issued in their form, so
that their command-line program can verify our nodes.
"""

from __future__ import annotations

from .issuer import issue_constellation_document
from .types import (
    VARIANT,
    VERIFY_SERVICE_USER_DATA,
    WARNING,
    ConstellationDocument,
    ConstellationPolicy,
    VerifiedConstellationDocument,
)
from .verifier import claimed_key_name, verify_constellation_document

__all__ = [
    "VARIANT",
    "VERIFY_SERVICE_USER_DATA",
    "WARNING",
    "ConstellationDocument",
    "ConstellationPolicy",
    "VerifiedConstellationDocument",
    "claimed_key_name",
    "issue_constellation_document",
    "verify_constellation_document",
]
