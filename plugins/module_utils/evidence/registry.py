# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attestation variants: an explicit table, alphabetical, statically imported.

Every use of a variant goes through this table: handshake evidence, the challenge, its answer and the verification of a
node. docs/adding-an-attestation-method.md describes how to add a variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ..errors import Refusal
from ..reasons import Reason
from ..transport.binding import handshake_digest
from . import constellation, sev_snp, tdx, tpm2
from .evidence import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..tpm.commands import LoadedKey
    from ..tpm.structures import Public
    from .tpm2 import QuotingTpm, VerifiedQuote


DEFAULT_VARIANT = tpm2.VARIANT


class Standing(Enum):
    """How far a variant was shown to work; the value is the sentence for status, report and documentation."""

    FOREIGN = "proven with software TPMs; anyone can make such a key, so trusted only as insecure_constellation_peer"
    PROVEN = "proven with software TPMs and recorded boots of machines"
    UNPROVEN = "verification only, not proven on hardware"


class IssueQuote(Protocol):
    """How a joining variant makes evidence."""

    def __call__(self, tpm: QuotingTpm, ak: LoadedKey, *, qualifying_data: bytes, pcrs: Iterable[int]) -> Evidence:
        """Return evidence over ``qualifying_data`` and the registers ``pcrs``."""


class VerifyQuote(Protocol):
    """How a joining variant checks evidence."""

    def __call__(self, evidence: Evidence, *, qualifying_data: bytes) -> VerifiedQuote:
        """Return what the evidence says, or raise `Refusal`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The three steps of the challenge's flow that a variant needs so that machines can join with it."""

    issue: IssueQuote
    verify: VerifyQuote
    verify_key: Callable[[Public], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One row: how evidence of ``name`` is issued (None: not here) and verified, and the types of both.

    ``admission``: the functions for a machine that joins; without them no machine can join with this variant.
    """

    name: str
    evidence: type
    verified: type
    issue: Callable[..., object] | None
    verify: Callable[..., object]
    standing: Standing
    admission: Admission | None = None


VARIANTS: dict[str, Variant] = {
    constellation.VARIANT: Variant(
        name=constellation.VARIANT,
        evidence=constellation.ConstellationDocument,
        verified=constellation.VerifiedConstellationDocument,
        issue=constellation.issue_constellation_document,
        verify=constellation.verify_constellation_document,
        standing=Standing.FOREIGN,
    ),
    sev_snp.VARIANT: Variant(
        name=sev_snp.VARIANT,
        evidence=sev_snp.SnpEvidence,
        verified=sev_snp.VerifiedSnpReport,
        issue=None,
        verify=sev_snp.verify_snp_report,
        standing=Standing.UNPROVEN,
    ),
    tdx.VARIANT: Variant(
        name=tdx.VARIANT,
        evidence=tdx.TdxEvidence,
        verified=tdx.VerifiedTdxQuote,
        issue=None,
        verify=tdx.verify_tdx_quote,
        standing=Standing.UNPROVEN,
    ),
    tpm2.VARIANT: Variant(
        name=tpm2.VARIANT,
        evidence=Evidence,
        verified=tpm2.VerifiedQuote,
        issue=tpm2.issue,
        verify=tpm2.verify_quote,
        standing=Standing.PROVEN,
        admission=Admission(issue=tpm2.issue, verify=tpm2.verify_quote, verify_key=tpm2.verify_attestation_key),
    ),
}


def variant(name: str) -> Variant:
    """Return the row of ``name``; raises `Refusal` VARIANT_UNKNOWN."""
    row = VARIANTS.get(name)
    if row is None:
        raise Refusal(f"expected evidence of {', '.join(VARIANTS)}, got {name[:32]!r}", reason=Reason.VARIANT_UNKNOWN)
    return row


def own_evidence() -> str:
    """Return the variant that nodes of this release use, and its standing, for display."""
    return f"{DEFAULT_VARIANT}: {variant(DEFAULT_VARIANT).standing.value}"


def unproven_evidence() -> str:
    """Return the variants that were never run on hardware, for display; empty if there are none."""
    names = [row.name for row in VARIANTS.values() if row.standing is Standing.UNPROVEN]
    return f"{', '.join(names)}: {Standing.UNPROVEN.value}" if names else ""


def admission(name: str) -> Admission:
    """Return how machines join with the variant ``name``; raises `Refusal` VARIANT_UNKNOWN or VARIANT_NOT_ADMITTED."""
    found = variant(name).admission
    if found is None:
        admitting = [row.name for row in VARIANTS.values() if row.admission]
        raise Refusal(
            f"expected evidence of {', '.join(admitting)} from a machine that joins, got {name}",
            reason=Reason.VARIANT_NOT_ADMITTED,
        )
    return found


def verify_evidence(evidence: Evidence, *, qualifying_data: bytes) -> VerifiedQuote:
    """Verify evidence by its variant; raises `Refusal` VARIANT_UNKNOWN, _NOT_ADMITTED or what the variant raises."""
    return admission(evidence.variant).verify(evidence, qualifying_data=qualifying_data)


# E1, the evidence inside a TLS certificate: it lets the connection begin and decides nothing else.
#
# Its quote is over the verifier's nonce and the certificate's key. Later the bound evidence must come from the same
# attestation key in the same run of the TPM (`verify`, step 6).


def issue_handshake_evidence(
    tpm: QuotingTpm, ak: LoadedKey, *, spki_sha256: bytes, nonce: bytes, pcrs: Iterable[int]
) -> bytes:
    """Return serialised evidence over the peer's ``nonce`` and the hash of our certificate's key (32 bytes each)."""
    qualifying_data = handshake_digest(nonce=nonce, spki_sha256=spki_sha256)
    return admission(DEFAULT_VARIANT).issue(tpm, ak, qualifying_data=qualifying_data, pcrs=pcrs).to_bytes()


def verify_handshake_evidence(document: bytes, *, spki_sha256: bytes, nonce: bytes) -> VerifiedQuote:
    """Return the quote in ``document`` if it is over our ``nonce`` and the peer's key; raises `Refusal`.

    Neither the TPM nor its values are checked here.
    """
    evidence = Evidence.parse(document)
    return verify_evidence(evidence, qualifying_data=handshake_digest(nonce=nonce, spki_sha256=spki_sha256))
