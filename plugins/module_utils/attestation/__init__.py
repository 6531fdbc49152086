# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence: made, carried, and verified in numbered steps. Private to the collection."""

from __future__ import annotations

from ..atls import Purpose
from .challenge import (
    Answer,
    BindingContext,
    Challenge,
    ChallengeRecord,
    ChallengeRequest,
    ChallengeStore,
    agreed_version,
    answer,
    exchange_digest,
    new_challenge,
)
from .constellation import (
    ConstellationPolicy,
    VerifiedConstellationDocument,
    claimed_key_name,
    issue_constellation_document,
    verify_constellation_document,
)
from .doorkeeper import issue_doorkeeper, verify_doorkeeper
from .ek_certificate import CertifiedKey
from .ek_profile import parse_certificate, spki_of
from .ek_store import EkStore, load_ek_store
from .eventlog import DEFAULT_REGISTER, LockReading, LockState, describe, parse_firmware_log, parse_records
from .evidence import BoundEvidence, EventLogs, Evidence
from .registry import VARIANTS, Standing, Variant, admission, own_evidence, unproven_evidence, variant, verify_evidence
from .tpm2 import QuotingTpm, VerifiedQuote, issue
from .verified import VerifiedMachine, VerifiedNode
from .verify import Demands, require_activation, shows_activation, verify_machine, verify_node

__all__ = [
    "DEFAULT_REGISTER",
    "VARIANTS",
    "Answer",
    "BindingContext",
    "BoundEvidence",
    "CertifiedKey",
    "Challenge",
    "ChallengeRecord",
    "ChallengeRequest",
    "ChallengeStore",
    "ConstellationPolicy",
    "Demands",
    "EkStore",
    "EventLogs",
    "Evidence",
    "LockReading",
    "LockState",
    "Purpose",
    "QuotingTpm",
    "Standing",
    "Variant",
    "VerifiedConstellationDocument",
    "VerifiedMachine",
    "VerifiedNode",
    "VerifiedQuote",
    "admission",
    "agreed_version",
    "answer",
    "claimed_key_name",
    "describe",
    "exchange_digest",
    "issue",
    "issue_constellation_document",
    "issue_doorkeeper",
    "load_ek_store",
    "new_challenge",
    "own_evidence",
    "parse_certificate",
    "parse_firmware_log",
    "parse_records",
    "require_activation",
    "shows_activation",
    "spki_of",
    "unproven_evidence",
    "variant",
    "verify_constellation_document",
    "verify_doorkeeper",
    "verify_evidence",
    "verify_machine",
    "verify_node",
]
